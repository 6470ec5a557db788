//! Arguments of `skep policy`.

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use skep_config::POLICY_NAMES;

use super::{AdviseArgs, CompareArgs, Target};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policies
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain a policy
    Show {
        /// Name of the policy
        #[arg(value_parser = PossibleValuesParser::new(POLICY_NAMES))]
        policy: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the policy of a service, from the next request on
    Set {
        /// Name of the service
        service: String,
        /// Name of the policy
        #[arg(value_parser = PossibleValuesParser::new(POLICY_NAMES))]
        policy: String,
        /// Print the API's response, as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Compare policies of a service in an A/B test: each is an arm, with clients of its own
    Compare(CompareArgs),
    /// Find the policy that suits a site, by simulating its access log under each
    Advise(Box<AdviseArgs>),
}
