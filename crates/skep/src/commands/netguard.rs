//! `skep netguard`: the small privileged process beside a daemon.

use skep_netguard::{Netguard as Guard, socket_of};

use super::config::load;
use super::run::end_with_stdin;
use crate::cli::Netguard;
use crate::{logging, signals};

pub(crate) fn run(args: &Netguard) -> anyhow::Result<()> {
    let config = load(&args.config)?;
    logging::start(config.log.level);
    let mut guard = Guard::new(&config, &args.name)?;
    if args.clear {
        return Ok(guard.clear()?);
    }
    if args.leashed {
        end_with_stdin()?;
    }
    let socket = socket_of(&config, &args.name);
    let mut announced = Ok(());
    guard.listen(&socket, args.leashed, || {
        announced = signals::announce(&format!("netguard ready at {}", socket.display()));
    })?;
    announced
}
