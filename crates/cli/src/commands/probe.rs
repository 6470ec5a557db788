//! `skep probe`: run, report, export.

mod printer;

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use skep_probe::{
    ExportError, ExportFormat, LIST_BYTES_MAX, ProbeOutcome, ProbePlan, ProbeSample, ProbeUrl,
    export_recorded, export_samples, run_probe, write_report,
};
use tokio::sync::oneshot;

use self::printer::{PrintEnd, Printer};
use super::{print, stop};
use crate::arguments::{ProbeCommand, ProbeRunArgs};
use crate::show;

/// How long a run that was ended by a signal waits until its output is read, in milliseconds: a terminal
/// accepts it at once.
const PRINT_WAIT_MS: u64 = 2_000;

pub(crate) fn probe(command: ProbeCommand) -> anyhow::Result<()> {
    match command {
        ProbeCommand::Run(args) => run(args),
        ProbeCommand::Report { files, out, step } => report(&files, &out, step),
        ProbeCommand::Export { file, csv: _, json, recorded } => export(&file, json, recorded),
    }
}

fn run(args: ProbeRunArgs) -> anyhow::Result<()> {
    let json = args.json;
    let plan = plan(args)?;
    stop::with_signals("probe-run", move |stop| run_until(&plan, json, stop))
}

fn run_until(plan: &ProbePlan, json: bool, stop: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (fail, failed) = oneshot::channel::<()>();
    let mut printer = Printer::begin(io::stdout(), || drop(fail))?;
    if !json {
        printer.print(show::probe_head());
    }
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stopped = until_stopped(stop, failed, Arc::clone(&is_stopped));
    let result = runtime.block_on(run_probe(plan, stopped, |it| printer.print(line(it, json))));
    // Does not wait for a name lookup that hangs.
    runtime.shutdown_background();
    let mut outcome = result?;
    let wait_ms_max = is_stopped.load(Ordering::Relaxed).then_some(PRINT_WAIT_MS);
    let end = printer.end(last_words(&mut outcome, &plan.out, json), wait_ms_max);
    match (outcome.fault, end) {
        (Some(fault), _) => Err(fault.into()),
        (None, PrintEnd::Failed(error)) => Err(error).context("cannot write the samples"),
        (None, PrintEnd::Written { dropped: 0 }) => Ok(()),
        (None, PrintEnd::Written { dropped }) => {
            eprintln!("skep: {dropped} lines were not printed: nobody read the others in time");
            Ok(())
        }
        (None, PrintEnd::Blocked) => {
            eprintln!("skep: not all lines were printed: nobody read them");
            Ok(())
        }
    }
}

/// Returns after a signal, which is recorded, or when nothing can be printed any more.
async fn until_stopped(
    stop: oneshot::Receiver<()>,
    failed: oneshot::Receiver<()>,
    is_stopped: Arc<AtomicBool>,
) {
    tokio::select! {
        _ = stop => is_stopped.store(true, Ordering::Relaxed),
        _ = failed => {}
    }
}

fn plan(args: ProbeRunArgs) -> anyhow::Result<ProbePlan> {
    let urls = match &args.list {
        Some(path) => {
            let list = read_list(path)?;
            ProbeUrl::gather(args.urls, &list).with_context(|| path.display().to_string())?
        }
        None => ProbeUrl::gather(args.urls, "")?,
    };
    Ok(ProbePlan {
        urls,
        label: args.label,
        interval_ms: args.interval,
        timeout_ms: args.timeout,
        turns_max: args.count,
        ca: args.ca,
        out: args.out,
    })
}

fn read_list(path: &Path) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(LIST_BYTES_MAX + 1).read_to_end(&mut text));
    read.with_context(|| format!("cannot read the list {}", path.display()))?;
    if text.len() as u64 > LIST_BYTES_MAX {
        bail!("{}: expected at most {LIST_BYTES_MAX} bytes of URLs", path.display());
    }
    String::from_utf8(text).with_context(|| format!("{}: expected one URL a line", path.display()))
}

fn line(sample: &ProbeSample, json: bool) -> String {
    match json {
        true => format!("{}\n", show::json(&sample.to_json().to_string())),
        false => show::probe_sample(sample),
    }
}

/// The output at the end of a run, whether it ended early or not.
fn last_words(outcome: &mut ProbeOutcome, out: &Path, json: bool) -> String {
    match json {
        true => format!("{}\n", show::json(&show::probe_summary_json(outcome))),
        false => show::probe_summary(outcome, out),
    }
}

fn report(files: &[PathBuf], out: &Path, step_ms: u64) -> anyhow::Result<()> {
    let report = write_report(files, out, step_ms)?;
    let mut text = String::new();
    for file in report.files {
        text.push_str(&format!("wrote {}\n", file.display()));
    }
    for note in report.notes {
        text.push_str(&format!("{note}\n"));
    }
    print(&text)
}

fn export(file: &Path, json: bool, recorded: bool) -> anyhow::Result<()> {
    let format = if json { ExportFormat::Json } else { ExportFormat::Csv };
    let mut out = BufWriter::new(io::stdout().lock());
    let export = if recorded { export_recorded } else { export_samples };
    match export(file, format, &mut out) {
        // The reader, such as `head`, wants no more.
        Err(ExportError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
