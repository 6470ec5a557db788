//! `skep policy`: list, show, set, compare, advise.

use anyhow::bail;
use serde_json::{Value, json};
use skep_console::{ApiClient, ApiResponse, NewComparison, NewPolicy, PolicyComparison};
use skep_policy::{PolicyInfo, policies};

use super::{advise, print, print_json};
use crate::arguments::{CompareAction, CompareArgs, PolicyCommand};
use crate::show;

pub(crate) fn policy(command: PolicyCommand) -> anyhow::Result<()> {
    match command {
        PolicyCommand::List { json: true } => {
            print_value(&policies().iter().map(value).collect::<Value>())
        }
        PolicyCommand::List { json: false } => print(&show::policies(policies())),
        PolicyCommand::Show { policy, json } => {
            let shown = policies().iter().filter(|info| info.name == policy);
            shown.into_iter().try_for_each(|info| match json {
                true => print_value(&value(info)),
                false => print(&show::policy(info)),
            })
        }
        PolicyCommand::Set { service, policy, json, target } => {
            let found = target.find()?;
            let path = format!("/api/v1/services/{}/policy", show::encode(&service));
            let answer = found.client.put_json(&path, &NewPolicy { policy: policy.clone() })?;
            match json {
                true => print_json(&answer),
                false => print(&format!("{service}: policy {policy}\n")),
            }
        }
        PolicyCommand::Compare(args) => compare(args),
        PolicyCommand::Advise(args) => advise::run(*args),
    }
}

fn compare(args: CompareArgs) -> anyhow::Result<()> {
    let CompareArgs { service, action, arms, json, target } = args;
    if action != CompareAction::Start && !arms.is_empty() {
        bail!("--arm is for `skep policy compare {service} start`");
    }
    let client = target.find()?.client;
    let answer = ask(&client, &service, action, NewComparison { arms })?;
    match json {
        true => print_json(&answer),
        false => {
            let shown: PolicyComparison = client.decode(&answer)?;
            print(&show::comparison(&shown))
        }
    }
}

fn ask(
    client: &ApiClient,
    service: &str,
    action: CompareAction,
    new: NewComparison,
) -> anyhow::Result<ApiResponse> {
    let path = format!("/api/v1/services/{}/comparison", show::encode(service));
    Ok(match action {
        CompareAction::Show => client.get(&path)?,
        CompareAction::Start => client.put_json(&path, &new)?,
        CompareAction::Stop => client.delete(&path)?,
    })
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
        "goes_by": info.goes_by,
        "direct": info.direct.is_some(),
        "learns_latencies": info.learns_latencies,
        "source": info.source,
        "details": info.details,
    })
}
