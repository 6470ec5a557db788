//! `skep status`.

use super::{print, print_json};
use crate::arguments::StatusArgs;
use crate::show;

pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let found = args.target.find()?;
    match args.json {
        true => print_json(&found.client.get("/api/v1/status")?),
        false => print(&show::status(&found.status, show::Paint::for_stdout())),
    }
}
