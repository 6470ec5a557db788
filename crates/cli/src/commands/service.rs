//! `skep service`: list.

use super::{print, print_json};
use crate::arguments::ServiceCommand;
use crate::show;

pub(crate) fn service(command: ServiceCommand) -> anyhow::Result<()> {
    let ServiceCommand::List(args) = command;
    let found = args.target.find()?;
    match args.json {
        true => print_json(&found.client.get("/api/v1/services")?),
        false => print(&show::services(&found.status.services)),
    }
}
