//! A file much larger than a node's memory, and smaller than the cluster's: whether it streams at the speed
//! of the links, whether seeks start at once, and what many readers cost the origin.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use skep_lab::load::{Downloads, PartReaders, Report, Running, Target, write_pattern};

use super::cell::pause;
use super::data::DataSet;
use super::limits::POLL_MS;
use super::machine::MachineDescription;
use super::origin::Object;
use super::page::{Page, ms, ratio, texts};
use super::rows::{Program, TableRow, node_name};
use super::settings::Settings;
use super::stage::{ServingBed, StagePlan};
use super::{Failure, interrupted};

const NGINX: &str = include_str!("../../peers/nginx-files.conf");

/// Size of the file in bytes, number of nodes, a node's memory in bytes, and concurrent readers.
const FULL: (u64, usize, u64, usize) = (2_000_000_000, 10, 256 << 20, 100);
/// The same for a short run, in similar proportion to the memory.
const QUICK: (u64, usize, u64, usize) = (200_000_000, 4, 64 << 20, 10);

/// Rate of limited links, in bits per second.
const LINK_BITS_S: u64 = 1_000_000_000;

/// Cores of each machine: no limit.
const CPU_CORES: f64 = 64.0;

/// Ports on the machine beside the nodes: of nginx, and of Skep alone.
const PORTS: [u16; 2] = [8081, 8082];

/// Number of seeks of one reader, and the bytes read at each.
const SEEKS: u64 = 200;
const SEEK_BYTES: u64 = 1_000;

/// Bytes that a reader reads at each position, and how many times the file's length all readers together
/// read.
const PART_BYTES: u64 = 4_000_000;
const ROUNDS: u64 = 4;

/// Maximum of the origin's traffic relative to the file's length.
const RATIO_MAX: f64 = 1.05;

/// A 2 GB file through nodes with 256 MB of memory each
#[derive(Debug, Args)]
pub(crate) struct LargeOptions {
    /// A file of a tenth of the size, with four nodes
    #[arg(long)]
    quick: bool,
    /// Folder for the page; without it, the page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Skep binary
    #[arg(long, default_value_os_t = super::default_skep())]
    skep: PathBuf,
}

/// One download of the whole file.
#[derive(Serialize, Deserialize)]
struct Stream {
    what: String,
    /// Whether the links' rate was limited.
    has_rate: bool,
    first_byte_us: u64,
    mb_s: f64,
}

/// The results as written to JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    file_bytes: u64,
    nodes: usize,
    cache_bytes: u64,
    readers_at_once: usize,
    streams: Vec<Stream>,
    cold_seeks: Report,
    warm_seeks: Report,
    readers: Report,
    /// Bytes that the origin sent meanwhile relative to the file's length, after each round.
    ratios: Vec<f64>,
    /// Outcomes of nodes' look-ups of segments meanwhile.
    outcomes: BTreeMap<String, u64>,
}

/// The scale of a run.
#[derive(Clone, Copy)]
struct Scale {
    file: Object,
    nodes: usize,
    cache_bytes: u64,
    readers: usize,
}

pub(crate) fn run(options: &LargeOptions) -> Result<(), Failure> {
    super::prepare()?;
    let (bytes, nodes, cache_bytes, at_once) = if options.quick { QUICK } else { FULL };
    let file = Object { id: 1, bytes, period_ms: 0 };
    let scale = Scale { file, nodes, cache_bytes, readers: at_once };
    let settings = Settings {
        node_cpu_cores: CPU_CORES,
        dispatcher_cpu_cores: CPU_CORES,
        origin_cpu_cores: CPU_CORES,
        ..Settings::new(options.skep.clone(), false)
    };
    let streams = streams(scale, &settings)?;
    let (cold_seeks, warm_seeks) = seeks(scale, &settings)?;
    let (readers, ratios, outcomes) = readers(scale, &settings)?;
    let machine = MachineDescription::describe(&options.skep);
    let results = Results {
        machine,
        file_bytes: bytes,
        nodes,
        cache_bytes,
        readers_at_once: at_once,
        streams,
        cold_seeks,
        warm_seeks,
        readers,
        ratios,
        outcomes,
    };
    results.page().finish(options.out.as_deref(), &results, &results.troubles())
}

fn stage(scale: Scale, settings: &Settings) -> Result<ServingBed, Failure> {
    let data = DataSet::of_bytes(0);
    let Scale { nodes, cache_bytes, .. } = scale;
    let plan = StagePlan {
        row: TableRow::SkepProxy,
        nodes,
        spares: 1,
        cache_bytes,
        link_mbit_s: 0,
        data: &data,
        settings,
    };
    ServingBed::new(&plan)
}

/// Downloads of the whole file, one after the other.
fn streams(scale: Scale, settings: &Settings) -> Result<Vec<Stream>, Failure> {
    let mut stage = stage(scale, settings)?;
    let Scale { file, nodes, cache_bytes, .. } = scale;
    let beside = start_beside(&mut stage, scale, settings)?;
    let node = |index| Target::new(stage.node_address(index), &file.path());
    let same = Object { id: 2, ..file };
    let cold = |index| Target::new(stage.node_address(index), &same.path());
    let mut streams = Vec::new();
    for (has_rate, cold) in [(true, node(0)), (false, cold(0))] {
        stage.set_node_rate(has_rate.then_some(LINK_BITS_S))?;
        let warm = Target { address: stage.node_address(nodes / 2), ..cold.clone() };
        let rows = [
            ("nginx, a file in its page cache".to_owned(), &beside[0]),
            ("Skep alone, the same file, past its memory".to_owned(), &beside[1]),
            ("Skep's cluster, from the origin".to_owned(), &cold),
            ("Skep's cluster, from the nodes' memories".to_owned(), &warm),
        ];
        for (what, target) in rows {
            let report = download(&stage, target)?;
            let mb_s = report.bytes as f64 / 1e3 / report.elapsed_ms.max(1) as f64;
            println!("  {what}, links with a rate: {has_rate}: {mb_s:.0} MB/s");
            let first_byte_us = report.time_us.max;
            streams.push(Stream { what, has_rate, first_byte_us, mb_s });
        }
    }
    debug_assert!(cache_bytes < file.bytes);
    Ok(streams)
}

/// Starts nginx and Skep alone with the file, on a machine that is not a node.
fn start_beside(
    stage: &mut ServingBed,
    scale: Scale,
    settings: &Settings,
) -> Result<[Target; 2], Failure> {
    let (file, name) = (scale.file, node_name(scale.nodes));
    let folder = stage.folder(&name);
    let (dir, root) = (folder.display(), folder.join("files"));
    fs::create_dir_all(&root)?;
    write_pattern(file.issue().pattern, &root.join("film"), file.bytes)?;
    let text = NGINX
        .replace("@DIR@", &dir.to_string())
        .replace("@PORT@", &PORTS[0].to_string())
        .replace("@ROOT@", &root.display().to_string());
    let nginx = Program {
        files: vec![("nginx-files.conf", text)],
        words: format!("nginx -c {dir}/nginx-files.conf -p {dir} -e {dir}/error.log")
            .split(' ')
            .map(str::to_owned)
            .collect(),
    };
    let skep = settings.skep.display();
    let (listen, cache) = (format!("0.0.0.0:{}", PORTS[1]), scale.cache_bytes);
    let root = root.display();
    let words = format!(
        "{skep} serve {root} --listen {listen} --threads 1 --access-log off --cache-size {cache}"
    );
    let alone = Program { files: Vec::new(), words: words.split(' ').map(str::to_owned).collect() };
    stage.start_beside(&name, &nginx, PORTS[0])?;
    stage.start_beside(&name, &alone, PORTS[1])?;
    let ip = stage.node_address(scale.nodes).ip();
    Ok(PORTS.map(|port| Target::new((ip, port).into(), "/film")))
}

/// One download at full speed; its bytes are not compared, so that the client is not the bottleneck.
fn download(stage: &ServingBed, target: &Target) -> Result<Report, Failure> {
    let downloads =
        Downloads { rate_bytes_s: 0, deadline_ms: 600_000, ..Downloads::new(target.clone(), 1) };
    right(downloads.start_in(stage.client()?)?)
}

/// One reader's seeks: first with empty memories, then with much of the file in memory.
fn seeks(scale: Scale, settings: &Settings) -> Result<(Report, Report), Failure> {
    let stage = stage(scale, settings)?;
    let parts = |seed| PartReaders {
        part_bytes: SEEK_BYTES,
        readers: 1,
        count: SEEKS,
        seed,
        ..parts(&stage, scale)
    };
    let client = stage.client()?;
    let cold = right(parts(1).start_in(client)?)?;
    // Other positions.
    let warm = right(parts(2).start_in(client)?)?;
    println!(
        "  seeks: first byte after {} us cold, {} us warm",
        cold.time_us.p50, warm.time_us.p50
    );
    Ok((cold, warm))
}

/// The readers' results, the origin's cost, and the outcomes of nodes' look-ups.
type Reading = (Report, Vec<f64>, BTreeMap<String, u64>);

/// Many readers, and what they cost the origin.
fn readers(scale: Scale, settings: &Settings) -> Result<Reading, Failure> {
    let stage = stage(scale, settings)?;
    let before = stage.origin_counts()?;
    let per_round = scale.file.bytes / PART_BYTES;
    let parts = PartReaders {
        part_bytes: PART_BYTES,
        readers: scale.readers,
        count: per_round * ROUNDS,
        seed: 3,
        ..parts(&stage, scale)
    };
    let running = parts.start_in(stage.client()?)?;
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        while running.progress().succeeded < per_round * round && !running.is_finished() {
            pause(POLL_MS)?;
        }
        let sent = stage.origin_counts()?.since(before).bytes;
        ratios.push(sent as f64 / scale.file.bytes as f64);
        println!(
            "  readers, round {round}: the origin sent {:.3} of the file",
            ratios[ratios.len() - 1]
        );
    }
    Ok((right(running)?, ratios, stage.outcomes()?))
}

fn parts(stage: &ServingBed, scale: Scale) -> PartReaders {
    let Scale { file, nodes, .. } = scale;
    let target = |index| Target::new(stage.node_address(index), &file.path());
    PartReaders {
        targets: (0..nodes).map(target).collect(),
        object_bytes: file.bytes,
        part_bytes: 0,
        readers: 1,
        count: 0,
        rate_bytes_s: 0,
        seed: 0,
        pattern: Some(file.issue().pattern),
        timeout_ms: 60_000,
    }
}

/// The report of a load, all of whose answers must be right.
fn right(running: Running) -> Result<Report, Failure> {
    while !running.is_finished() {
        interrupted()?;
        pause(POLL_MS)?;
    }
    let report = running.finish()?;
    match report.failed {
        0 => Ok(report),
        failed => Err(format!("{failed} replies were not right: {:?}", report.examples).into()),
    }
}

impl Results {
    fn troubles(&self) -> Vec<String> {
        let last = self.ratios.last().copied().unwrap_or_default();
        let is_fine = last <= RATIO_MAX;
        let said = || format!("the origin sent {last:.3} of the file: more than {RATIO_MAX}");
        (!is_fine).then(said).into_iter().collect()
    }

    fn page(&self) -> Page {
        let mut page = Page::new("large");
        page.add("# A file larger than a node's memory\n");
        page.add("`skep-lab large` makes this page ([how](README.md)).\n");
        page.add(&self.machine.text());
        page.add(&format!(
            "\nA file of {:.1} GB behind an HTTP origin that generates it; {} nodes with {} MiB of \
             memory each; all on this one machine, in network namespaces (`testbed/`), and on its \
             cores. Clients send their requests directly to the nodes.\n",
            self.file_bytes as f64 / 1e9,
            self.nodes,
            self.cache_bytes >> 20,
        ));
        self.add_streams(&mut page);
        self.add_seeks(&mut page);
        self.add_readers(&mut page);
        page
    }

    fn add_streams(&self, page: &mut Page) {
        page.add("## One reader of the whole\n");
        page.add(&format!(
            "MB/s and, beside it, the ratio to nginx, bold where it is below 1; with links of {} Mbit/s ({} MB/s \
             with all headers), and with links as fast as the kernel. The origin and all nodes share the reader's \
             cores.\n",
            LINK_BITS_S / 1_000_000,
            LINK_BITS_S / 8_000_000,
        ));
        let of = |what: &str, has_rate: bool| {
            let is_it = |it: &&Stream| it.what == what && it.has_rate == has_rate;
            self.streams.iter().find(is_it).map_or(0.0, |it| it.mb_s)
        };
        let first = self.streams.first().map(|it| it.what.clone()).unwrap_or_default();
        let names = self.streams.iter().filter(|it| it.has_rate).map(|it| it.what.clone());
        let cell = |what: &str, has_rate| {
            let mb_s = of(what, has_rate);
            format!("{mb_s:.0} ({})", ratio(mb_s, of(&first, has_rate)))
        };
        let row = |what: String| vec![what.clone(), cell(&what, true), cell(&what, false)];
        let rows: Vec<_> = names.map(row).collect();
        page.add_table(&texts(["", "1 Gbit/s", "no rate"]), &rows);
    }

    fn add_seeks(&self, page: &mut Page) {
        page.add("## Seeks\n");
        page.add(&format!(
            "One reader makes {SEEKS} requests for {SEEK_BYTES} bytes anywhere in the file: time to the \
             first byte, in ms. Cold: no node has any of it. Warm: at other places, afterwards.\n"
        ));
        let row = |what: &str, report: &Report| {
            let times = report.time_us;
            vec![what.to_owned(), ms(times.p50), ms(times.p99), ms(times.max)]
        };
        let rows = [row("cold", &self.cold_seeks), row("warm", &self.warm_seeks)];
        page.add_table(&texts(["", "p50", "p99", "longest"]), &rows);
    }

    fn add_readers(&self, page: &mut Page) {
        page.add("## Many readers\n");
        let mb_s = self.readers.bytes as f64 / 1e3 / self.readers.elapsed_ms.max(1) as f64;
        page.add(&format!(
            "{} readers, each at one of the nodes, read {} MB at random places, \
             {:.1} GB in all, at {mb_s:.0} MB/s; every byte is compared. Bytes that the origin had sent, divided by \
             the file's, after each further file size of reading:\n",
            self.readers_at_once,
            PART_BYTES / 1_000_000,
            self.readers.bytes as f64 / 1e9,
        ));
        let head: Vec<String> = (1..=self.ratios.len()).map(|round| format!("{round}")).collect();
        let row = self.ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        page.add_table(&head, &[row]);
        page.add("\nResults of the nodes' searches for segments:\n");
        let outcomes = self.outcomes.iter().filter(|(_, count)| **count > 0);
        let (names, counts): (Vec<_>, Vec<_>) =
            outcomes.map(|(name, count)| (name.clone(), count.to_string())).unzip();
        page.add_table(&names, &[counts]);
    }
}
