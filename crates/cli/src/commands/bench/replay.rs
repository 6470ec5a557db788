//! `skep bench replay`: a load with the request times of an access log.

use std::sync::Arc;

use anyhow::bail;
use skep_load::{
    BenchReport, DURATION_MS_MAX, LoadPace, LoadPlan, LoadSubject, LogTrace, ProcessShare,
};
use tokio::sync::oneshot;

use super::super::{print, progress, stop};
use super::{judge, play, write_plot};
use crate::arguments::{BenchHttp, BenchReplayArgs};
use crate::show;

pub(super) fn run(args: BenchReplayArgs) -> anyhow::Result<()> {
    stop::with_signals("bench-replay", move |stopped| run_until(&args, stopped))
}

fn run_until(args: &BenchReplayArgs, stopped: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let trace = Arc::new(progress::read_log(&args.log)?);
    let plan = plan(args, &trace)?;
    let is_part = args.share.is_some();
    let played = play(&plan, is_part, args.processes, args.plot.as_deref(), stopped)?;
    let Some(tally) = played else { return Ok(()) };
    let name = args.log.file_name().unwrap_or(args.log.as_os_str()).to_string_lossy();
    let report = BenchReport {
        workload: show::harmless_text(&name),
        url: plan.url.to_string(),
        pace: show::bench_pace(&plan),
        tally,
    };
    if let Some(file) = &args.plot {
        write_plot(&report, file)?;
    }
    if args.json {
        let mut value = report.to_json();
        value["log"] = show::log_json(&trace);
        print(&format!("{}\n", show::json(&value.to_string())))?;
    } else {
        let log = show::log_summary(&args.log, &trace);
        print(&format!("{log}\n{}", show::bench_report(&report)))?;
    }
    judge(&report)
}

fn plan(args: &BenchReplayArgs, trace: &Arc<LogTrace>) -> anyhow::Result<LoadPlan> {
    // The last second of the log is replayed to its end.
    let length_ms = (trace.length_ms() + u64::from(trace.resolution_ms())) as f64 / args.speed;
    let duration_ms = length_ms.ceil() as u64;
    if duration_ms > DURATION_MS_MAX {
        bail!(
            "the log is of {}, and a run of {} at most: say --speed, or give a part of the log",
            show::duration(trace.length_ms()),
            show::duration(DURATION_MS_MAX)
        );
    }
    if args.warm_up >= duration_ms {
        bail!(
            "--warm-up ({} s) leaves nothing of the log ({} s) to measure: a shorter one",
            args.warm_up as f64 / 1e3,
            duration_ms as f64 / 1e3
        );
    }
    let is_http10 = args.http == BenchHttp::Http10;
    Ok(LoadPlan {
        url: args.url.clone(),
        subject: LoadSubject::Log(Arc::clone(trace)),
        pace: LoadPace::Logged { speed: args.speed },
        clients: args.clients,
        is_http10,
        per_connection: args.per_connection.unwrap_or(if is_http10 { 1 } else { u64::MAX }),
        timeout_ms: args.timeout,
        duration_ms,
        warm_up_ms: args.warm_up,
        cool_down_ms: 0,
        requests_max: args.requests,
        seed: args.seed,
        share: args.share.unwrap_or(ProcessShare::WHOLE),
    })
}
