//! Drops the privileges of the start: afterwards this process runs as the serving user, without any other
//! privilege.
//!
//! It runs after all addresses are bound and before any other thread exists, in every mode, whichever user
//! started the process; a process that was not started as root only drops its capabilities.

use std::path::Path;

use anyhow::Context;
use skep_config::{AccessLogTarget, Config};
use skep_guard::access::{self, Closed, Need};
use skep_guard::{User, confine, privileges};
use skep_peer::RealtimePriority;

use crate::roles::Roles;
use crate::settings::names_socket;

/// Changes this process to the serving user. `file` is its config file, if it has one.
pub(crate) fn demote(config: &Config, roles: &Roles, file: Option<&Path>) -> anyhow::Result<()> {
    let was_root = rustix::process::geteuid().is_root();
    let user = User::serving(config.machine.user.as_deref(), &config.machine.groups)?;
    if file.is_some() {
        make_folders(config, roles, &user)?;
    }
    let threads = realtime_threads(config, roles);
    let raised = (threads > 0).then(RealtimePriority::try_new).flatten();
    privileges::serve_as(&user)?;
    confine_to(config, roles);
    if let Some(raised) = raised {
        raised.keep(threads).context("cannot keep threads for real-time work")?;
    }
    check_access(config, roles, file)?;
    if was_root {
        tracing::info!(user = user.name, "switched to the serving user");
    }
    Ok(())
}

/// Threads with real-time priority: one that sends reports or heartbeats, one that receives them, and one that moves
/// connections.
fn realtime_threads(config: &Config, roles: &Roles) -> usize {
    if config.steered_services().next().is_none() && !config.reports_load() {
        return 0;
    }
    let moves = roles.node.is_some() && config.hands_off();
    usize::from(roles.node.is_some()) + usize::from(roles.services) + usize::from(moves)
}

/// Checks that the serving user can read the sites.
pub(crate) fn check_sites(config: &Config, roles: &Roles) -> Result<(), Box<Closed>> {
    let backends = config.backends().filter(|_| roles.node.is_some());
    for backend in backends {
        if let Some(root) = &backend.root {
            access::check("the site's folder", root, Need::Enter)?;
        }
        if let Some(root) = &backend.forward.sendfile_root {
            access::check("the folder `sendfile_root`", root, Need::Enter)?;
        }
        if let Some(file) = &backend.reply.file {
            access::check("the file of a fixed reply", file, Need::Read)?;
        }
    }
    Ok(())
}

/// Makes the start fail on errors that would otherwise occur later, or at the first reload.
fn check_access(config: &Config, roles: &Roles, file: Option<&Path>) -> Result<(), Box<Closed>> {
    check_sites(config, roles)?;
    if let AccessLogTarget::File(path) = &config.log.access {
        access::check("the access log", path, Need::Write)?;
    }
    if let Some(spool) = spool(config, roles) {
        access::check("the folder `spool.folder`", spool, Need::Fill)?;
    }
    if let Some(folder) = recorder_folder(config) {
        access::check("the folder of `recorder.file`", folder, Need::Fill)?;
    }
    let Some(file) = file else { return Ok(()) };
    access::check("the config", file, Need::Read)?;
    let needs_state =
        config.dispatcher(&roles.name).is_some() && config.steered_services().next().is_some();
    if needs_state || names_socket(config) {
        access::check("the folder `state_dir`", &config.state_dir, Need::Fill)?;
    }
    Ok(())
}

/// Blocks system calls and files that are never needed. A process whose kernel lacks support continues
/// without.
fn confine_to(config: &Config, roles: &Roles) {
    let socket = config.socket_of(&roles.name);
    let mut writable = vec![config.state_dir.as_path()];
    writable.extend(socket.parent());
    writable.extend(spool(config, roles));
    if let AccessLogTarget::File(path) = &config.log.access {
        writable.extend(path.parent());
    }
    writable.extend(recorder_folder(config));
    for confined in
        [confine::deny_calls(confine::Bpf::Denied), confine::write_only_below(&writable)]
    {
        if let Err(error) = confined {
            tracing::warn!("{error}; continuing without this restriction");
        }
    }
}

/// The folder of the spool, if this process has one.
fn spool<'c>(config: &'c Config, roles: &Roles) -> Option<&'c Path> {
    config.spool.folder.as_deref().filter(|_| roles.node.is_some())
}

/// The folder of the recorder's file, in which SQLite also creates a log.
fn recorder_folder(config: &Config) -> Option<&Path> {
    config.recorder.file.as_deref()?.parent()
}

/// Creates the missing folders to which this process will write, with `user` as their owner.
fn make_folders(config: &Config, roles: &Roles, user: &User) -> anyhow::Result<()> {
    let socket = config.socket_of(&roles.name);
    if let Some(spool) = spool(config, roles) {
        let made = user.make_folder(spool);
        made.with_context(|| format!("cannot make {}", spool.display()))?;
    }
    let folders = [Some(config.state_dir.as_path()), socket.parent()];
    for folder in folders.into_iter().flatten() {
        match user.make_folder(folder) {
            // Not an error: the default folder was not asked for.
            Err(_) if !names_socket(config) => {}
            made => made.with_context(|| format!("cannot make {}", folder.display()))?,
        }
    }
    Ok(())
}
