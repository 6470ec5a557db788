//! `skep bench`: data, run; replay is in replay.rs.

mod processes;
mod replay;

use std::path::Path;

use anyhow::{Context, bail};
use skep_load::{
    BenchReport, LoadPace, LoadPlan, LoadSubject, LoadTally, ProcessShare, Workload, check_target,
    plot_load, run_load, write_data,
};
use tokio::sync::oneshot;

use super::progress::{bytes_bar, run_bar, show_progress};
use super::{print, stop};
use crate::arguments::{BenchCommand, BenchDataArgs, BenchHttp, BenchRunArgs, BenchWorkload};
use crate::show;

/// Default length of a run, and of its warm-up, in milliseconds.
const DURATION_MS: u64 = 30_000;
const WARM_UP_MS: u64 = 5_000;

/// The portal's values as published, under heavy load.
const PORTAL: (u32, u64) = (50, 500);

pub(crate) fn bench(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Data(args) => data(&args),
        BenchCommand::Run(args) => run(*args),
        BenchCommand::Replay(args) => replay::run(*args),
    }
}

fn data(args: &BenchDataArgs) -> anyhow::Result<()> {
    let Some(kind) = args.workload.kind() else {
        bail!("portal has no files: it asks for a page of an application");
    };
    let workload = Workload::new(kind, args.files.scale, args.files.seed)?;
    let bar = bytes_bar(workload.sizes().iter().sum());
    let written = write_data(&workload, &args.dir, |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    print(&show::bench_data(&written?, &args.dir))
}

fn run(args: BenchRunArgs) -> anyhow::Result<()> {
    stop::with_signals("bench-run", move |stopped| run_until(&args, stopped))
}

fn run_until(args: &BenchRunArgs, stopped: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let plan = plan(args)?;
    match play(&plan, args.share.is_some(), args.processes, args.plot.as_deref(), stopped)? {
        Some(tally) => report(args, &plan, tally),
        None => Ok(()),
    }
}

/// Runs a load in `processes` processes. A process that is one part of it prints its counts, and returns
/// nothing.
fn play(
    plan: &LoadPlan,
    is_part: bool,
    processes: u16,
    plot: Option<&Path>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Option<LoadTally>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if is_part {
        let tally = runtime.block_on(run_load(plan, until(stopped), |_| ()))?;
        return print(&format!("{}\n", serde_json::to_string(&tally)?)).map(|()| None);
    }
    if let Some(file) = plot {
        // Checked before the run rather than after it.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    runtime.block_on(check_target(plan))?;
    let bar = run_bar(plan);
    let tally = match processes {
        1 => {
            let told = |progress| show_progress(&bar, progress);
            runtime.block_on(run_load(plan, until(stopped), told)).map_err(Into::into)
        }
        count => processes::run(count, stopped, |elapsed_ms| bar.set_position(elapsed_ms)),
    };
    bar.finish_and_clear();
    // Does not wait for a name lookup that hangs.
    runtime.shutdown_background();
    tally.map(Some)
}

async fn until(stopped: oneshot::Receiver<()>) {
    // Without a sender nothing stops the run.
    if stopped.await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn plan(args: &BenchRunArgs) -> anyhow::Result<LoadPlan> {
    let kind = args.workload.kind();
    let habits = kind.map(skep_load::WorkloadKind::habits);
    let subject = match kind {
        Some(kind) => LoadSubject::Files(Workload::new(kind, args.files.scale, args.files.seed)?),
        None => LoadSubject::Page { has_same_bodies: args.same_bodies },
    };
    let clients = args.clients.or(habits.map(|it| it.clients)).unwrap_or(PORTAL.0);
    let ramp = habits.and_then(|it| it.ramp).filter(|_| args.rate.is_none());
    let usual_ms = ramp.map_or(DURATION_MS, |ramp| ramp.end_ms(clients));
    let duration_ms = args.duration.unwrap_or(usual_ms);
    let ramp = ramp.map(|ramp| ramp.within_ms(clients, duration_ms));
    let has_warm_up = ramp.is_none() && kind.is_some();
    let warm_up_ms = args.warm_up.unwrap_or(match has_warm_up {
        true => WARM_UP_MS.min(duration_ms / 4),
        false => 0,
    });
    if warm_up_ms + args.cool_down >= duration_ms {
        bail!(
            "--warm-up ({} s) and --cool-down ({} s) leave nothing of --duration ({} s) to measure: \
             a longer duration, or --warm-up 0s",
            warm_up_ms as f64 / 1e3,
            args.cool_down as f64 / 1e3,
            duration_ms as f64 / 1e3
        );
    }
    let is_http10 = match args.http {
        Some(version) => version == BenchHttp::Http10,
        None => habits.is_some_and(|it| it.is_http10),
    };
    let keeps = kind.is_some() && !is_http10;
    let requests_max =
        args.requests.or((args.workload == BenchWorkload::Portal).then_some(PORTAL.1));
    Ok(LoadPlan {
        url: args.url.clone(),
        subject,
        pace: match args.rate {
            Some(per_second) => LoadPace::Open { per_second },
            None => LoadPace::Closed { think_ms: args.think, ramp },
        },
        clients,
        is_http10,
        per_connection: args.per_connection.unwrap_or(if keeps { u64::MAX } else { 1 }),
        timeout_ms: args.timeout,
        duration_ms,
        warm_up_ms,
        cool_down_ms: args.cool_down,
        requests_max,
        seed: args.files.seed,
        share: args.share.unwrap_or(ProcessShare::WHOLE),
    })
}

fn report(args: &BenchRunArgs, plan: &LoadPlan, tally: LoadTally) -> anyhow::Result<()> {
    let workload = args.workload.kind().map_or("portal", skep_load::WorkloadKind::name);
    let report = BenchReport {
        workload: workload.to_owned(),
        url: plan.url.to_string(),
        pace: show::bench_pace(plan),
        tally,
    };
    if let Some(file) = &args.plot {
        write_plot(&report, file)?;
    }
    match args.json {
        true => print(&format!("{}\n", show::json(&report.to_json().to_string())))?,
        false => print(&show::bench_report(&report))?,
    }
    judge(&report)
}

/// Checks that there was a right answer, and no wrong body.
fn judge(report: &BenchReport) -> anyhow::Result<()> {
    match (report.tally.wrong_bodies(), report.tally.succeeded) {
        (0, 0) if report.tally.is_stopped => Ok(()),
        (0, 0) => bail!("no request has a right answer"),
        (0, _) => Ok(()),
        (wrong, _) => bail!("{wrong} bodies are not what they must be"),
    }
}

fn write_plot(report: &BenchReport, file: &Path) -> anyhow::Result<()> {
    let svg = plot_load(report)?;
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}
