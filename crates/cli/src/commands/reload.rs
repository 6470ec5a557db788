//! `skep reload`.

use skep_console::Reloaded;

use super::{print, print_json};
use crate::arguments::ReloadArgs;

pub(crate) fn reload(args: &ReloadArgs) -> anyhow::Result<()> {
    let found = args.target.find()?;
    let answer = found.client.post("/api/v1/reload")?;
    if args.json {
        return print_json(&answer);
    }
    let reloaded: Reloaded = found.client.decode(&answer)?;
    let (name, generation) = (found.status.name, reloaded.config_generation);
    let changed = reloaded.restart_needed.iter();
    let later: String = changed
        .map(|setting| format!("{setting} changed; it takes effect at the next restart\n"))
        .collect();
    print(&format!("{name}: reloaded, config generation {generation}\n{later}"))
}
