//! `skep probe`: run, report, export.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use skep_probe::{
    ExportError, ExportFormat, LIST_BYTES_MAX, ProbePlan, ProbeSample, ProbeUrl, export_samples,
    run_probe, write_report,
};

use super::print;
use crate::arguments::{ProbeCommand, ProbeRunArgs};
use crate::show;
use crate::signals::{Signals, Wish};

pub(crate) fn probe(command: ProbeCommand) -> anyhow::Result<()> {
    match command {
        ProbeCommand::Run(args) => run(args),
        ProbeCommand::Report { files, out } => report(&files, &out),
        ProbeCommand::Export { file, csv: _, json } => export(&file, json),
    }
}

fn run(args: ProbeRunArgs) -> anyhow::Result<()> {
    let json = args.json;
    let plan = plan(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let stop = until_stopped(Signals::listen()?);
        if !json {
            print(&show::probe_head())?;
        }
        let summary = run_probe(&plan, stop, |sample| print_sample(sample, json)).await?;
        anyhow::Ok(summary)
    });
    // A lookup that hangs is not waited for.
    runtime.shutdown_background();
    let summary = result?;
    match json {
        true => print(&format!("{}\n", show::probe_summary_json(&summary))),
        false => print(&show::probe_summary(summary, &plan.out)),
    }
}

fn plan(args: ProbeRunArgs) -> anyhow::Result<ProbePlan> {
    let mut urls = args.urls;
    if let Some(path) = &args.list {
        let text = read_list(path)?;
        urls.extend(ProbeUrl::parse_list(&text).with_context(|| path.display().to_string())?);
    }
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

/// Until Ctrl-C or SIGTERM; there is nothing to reload.
async fn until_stopped(mut signals: Signals) {
    while signals.next().await == Wish::Reload {}
}

fn print_sample(sample: &ProbeSample, json: bool) -> io::Result<()> {
    let line = match json {
        true => format!("{}\n", show::json(&sample.to_json().to_string())),
        false => show::probe_sample(sample),
    };
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

fn report(files: &[PathBuf], out: &Path) -> anyhow::Result<()> {
    let report = write_report(files, out)?;
    let mut text = String::new();
    for file in report.files {
        text.push_str(&format!("wrote {}\n", file.display()));
    }
    for note in report.notes {
        text.push_str(&format!("{note}\n"));
    }
    print(&text)
}

fn export(file: &Path, json: bool) -> anyhow::Result<()> {
    let format = if json { ExportFormat::Json } else { ExportFormat::Csv };
    let mut out = BufWriter::new(io::stdout().lock());
    match export_samples(file, format, &mut out) {
        // `head` has seen enough.
        Err(ExportError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
