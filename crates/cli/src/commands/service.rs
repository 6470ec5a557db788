//! `skep service`: list, policy.

use skep_console::NewPolicy;

use super::{print, print_json};
use crate::arguments::{PolicyChange, ServiceCommand};
use crate::show;

pub(crate) fn service(command: ServiceCommand) -> anyhow::Result<()> {
    match command {
        ServiceCommand::List(args) => {
            let found = args.target.find()?;
            match args.json {
                true => print_json(&found.client.get("/api/v1/services")?),
                false => print(&show::services(&found.status.services)),
            }
        }
        ServiceCommand::Policy(change) => set_policy(&change),
    }
}

/// Changes the policy of a service.
pub(super) fn set_policy(change: &PolicyChange) -> anyhow::Result<()> {
    let PolicyChange { service, policy, json, target } = change;
    let found = target.find()?;
    let path = format!("/api/v1/services/{}/policy", show::encode(service));
    let answer = found.client.put_json(&path, &NewPolicy { policy: policy.clone() })?;
    match json {
        true => print_json(&answer),
        false => print(&format!("{service}: policy {policy}\n")),
    }
}
