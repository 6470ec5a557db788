//! `skep policy compare`. An arm is typed `NAME=POLICY`, and then `*WEIGHT` and `:NODE,NODE` if wanted.

use clap::{Args, ValueEnum};
use skep_console::NewArm;

use super::Target;

#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Name of the service
    pub(crate) service: String,
    /// What to do
    #[arg(value_enum, default_value_t = CompareAction::Show)]
    pub(crate) action: CompareAction,
    /// Arm to start with; give at least two: a name and a policy, and optionally the weight of its share of
    /// clients, and its group of nodes (for all arms, or for none)
    #[arg(
        long = "arm",
        value_name = "NAME=POLICY[*WEIGHT][:NODE,...]",
        value_parser = arm,
        required_if_eq("action", "start")
    )]
    pub(crate) arms: Vec<NewArm>,
    /// Print the API's response, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// What is done about an A/B test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareAction {
    /// Show the counts of the arms, and whether they differ
    Show,
    /// Start a test, in place of one that is running; if it has the same arms, known clients stay in theirs,
    /// and counts start again
    Start,
    /// Stop the test, and show its counts
    Stop,
}

/// Parses an arm. Whether its nodes exist is checked by the dispatcher.
fn arm(text: &str) -> Result<NewArm, String> {
    let form = "NAME=POLICY[*WEIGHT][:NODE,...]";
    let (name, rest) = text.split_once('=').ok_or_else(|| format!("expected {form}"))?;
    let (policy, nodes) = match rest.split_once(':') {
        Some((policy, nodes)) => (policy, Some(nodes)),
        None => (rest, None),
    };
    let (policy, weight) = match policy.split_once('*') {
        Some((policy, weight)) => (policy, Some(weight)),
        None => (policy, None),
    };
    if name.is_empty() {
        return Err(format!("an arm needs a name: {form}"));
    }
    skep_policy::build(policy, 0).map_err(|unknown| unknown.to_string())?;
    Ok(NewArm {
        name: name.to_owned(),
        policy: policy.to_owned(),
        weight: weight.map(self::weight).transpose()?,
        nodes: nodes.map_or(Ok(Vec::new()), self::nodes)?,
    })
}

fn weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok().filter(|weight| (1..=skep_units::WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| {
        format!("weight {text}: a whole number from 1 to {}", skep_units::WEIGHT_MAX)
    })
}

fn nodes(text: &str) -> Result<Vec<String>, String> {
    let nodes: Vec<String> = text.split(',').map(str::to_owned).collect();
    match nodes.iter().any(String::is_empty) {
        true => Err("an empty group of nodes: leave out the `:` for all nodes".to_owned()),
        false => Ok(nodes),
    }
}
