//! `skep policy`: list, show, set.

use serde_json::{Value, json};
use skep_console::{PolicyInfo, policies};

use super::print;
use super::service::set_policy;
use crate::arguments::PolicyCommand;
use crate::show;

pub(crate) fn policy(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::List { json: true } => {
            print_value(&policies().iter().map(value).collect::<Value>())
        }
        PolicyCommand::List { json: false } => print(&show::policies(policies())),
        PolicyCommand::Show { policy, json } => {
            let info = policies().iter().find(|info| info.name == policy);
            let Some(info) = info else {
                anyhow::bail!("no policy {policy:?}; `skep policy list` lists them")
            };
            match json {
                true => print_value(&value(info)),
                false => print(&show::policy(info)),
            }
        }
        PolicyCommand::Set(change) => set_policy(&change),
    }
}

fn print_value(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

fn value(info: &PolicyInfo) -> Value {
    json!({
        "name": info.name,
        "about": info.about,
        "content_aware": info.content_aware,
        "weighted": info.weighted,
        "direct": info.direct.is_some(),
        "measures_replies": info.measures_replies,
        "source": info.source,
        "details": info.details,
    })
}
