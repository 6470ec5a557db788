//! Parts of the pages: tables in Markdown, a description of the setting, the files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::Failure;
use super::machine::MachineDescription;
use super::plot::Plot;
use super::rows::TableRow;
use super::settings::Settings;

/// An experiment's page with its plots.
pub(super) struct Page {
    /// The name, also of its files.
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) plots: Vec<(String, Plot)>,
}

/// A column of figures: its name, and which figures are better.
pub(super) type Column = (&'static str, Better);

/// Which of two figures is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    More,
    Less,
    /// It depends on other columns.
    Neither,
}

impl Better {
    fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            Self::More => a > b,
            Self::Less => a < b,
            Self::Neither => false,
        }
    }
}

impl Page {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, text: String::new(), plots: Vec::new() }
    }

    pub(super) fn add(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Adds a plot in a separate file; `what` distinguishes it from the page's other plots.
    pub(super) fn add_plot(&mut self, what: &str, plot: Plot) {
        let file = format!("{}-{what}.svg", self.name);
        let _ = writeln!(self.text, "![{}]({file})\n", plot.title);
        self.plots.push((file, plot));
    }

    /// Adds a table; see [`table`].
    pub(super) fn add_table(&mut self, head: &[String], rows: &[Vec<String>]) {
        self.add(&table(head, rows));
    }

    /// Adds a table with a row of figures for each of Skep's rows and of the peers'; Skep's are bold where a
    /// peer is better. `first` is the heading of the first column.
    pub(super) fn add_compared(
        &mut self,
        first: &str,
        columns: &[Column],
        mut rows: Vec<(TableRow, Vec<String>)>,
    ) {
        for (at, (_, better)) in columns.iter().enumerate() {
            let figure = |(_, cells): &(TableRow, Vec<String>)| cells[at].parse().ok();
            let peers = rows.iter().filter(|(row, _)| !row.is_skep()).filter_map(figure);
            let Some(best) = peers.reduce(|a, b| if better.is_better(a, b) { a } else { b }) else {
                continue;
            };
            for row in rows.iter_mut().filter(|(row, _)| row.is_skep()) {
                let loses = figure(row).is_some_and(|own| better.is_better(best, own));
                row.1[at] = bold(&row.1[at], loses);
            }
        }
        let names = columns.iter().map(|(name, _)| (*name).to_owned());
        let head: Vec<_> = std::iter::once(first.to_owned()).chain(names).collect();
        let line = |(row, cells): (TableRow, Vec<String>)| {
            std::iter::once(row.name().to_owned()).chain(cells).collect()
        };
        self.add_table(&head, &rows.into_iter().map(line).collect::<Vec<_>>());
    }

    /// Writes page, plots and `results` into a folder, or prints the page. `NAME-notes.md` in that folder
    /// contains a person's remarks, which are appended to the page and preserved. Returns an error if there
    /// are troubles.
    pub(super) fn finish(
        &self,
        out: Option<&Path>,
        results: &impl Serialize,
        troubles: &[String],
    ) -> Result<(), Failure> {
        match out {
            None => println!("{}", self.text),
            Some(out) => self.write(out, results)?,
        }
        match troubles.len() {
            0 => Ok(()),
            count => {
                Err(format!("{count} cells could not be measured or are amiss, see the page")
                    .into())
            }
        }
    }

    fn write(&self, out: &Path, results: &impl Serialize) -> Result<(), Failure> {
        fs::create_dir_all(out)?;
        let notes = fs::read_to_string(out.join(format!("{}-notes.md", self.name)));
        let text = format!("{}\n\n{}", self.text.trim_end(), notes.unwrap_or_default());
        write_whole(&out.join(format!("{}.md", self.name)), &text)?;
        let json = serde_json::to_string_pretty(results)?;
        write_whole(&out.join(format!("{}.json", self.name)), &(json + "\n"))?;
        for (file, plot) in &self.plots {
            plot.write(&out.join(file))?;
        }
        println!("skep-lab: wrote {}/{}.md", out.display(), self.name);
        Ok(())
    }
}

/// A number with about three digits.
pub(super) fn three_digits(value: f64) -> String {
    match value {
        large if large >= 100.0 => format!("{large:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}

/// Replaces a file atomically: a reader gets the old one or the new one, even if this is interrupted.
fn write_whole(file: &Path, text: &str) -> Result<(), Failure> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, text)?;
    Ok(fs::rename(&fresh, file)?)
}

/// A description of the setting that all experiments share.
pub(super) fn setting(settings: &Settings, machine: &MachineDescription) -> String {
    let mbit = |bits: u64| bits / 1_000_000;
    let Settings { node_cpu_cores, dispatcher_cpu_cores, origin_cpu_cores, .. } = settings;
    format!(
        "{}\n\n\
         All of it runs on this one machine, in network namespaces (`testbed/`): a client machine, a \
         dispatcher, nodes, an origin. So that the links and the origin are the bottleneck and not the machine's \
         cores, both are slow: each node's link has {} Mbit/s either way, the origin answers \
         after {} ms and sends {} Mbit/s in all. Each node has {node_cpu_cores} of a core, the \
         dispatcher {dispatcher_cpu_cores}, the origin {origin_cpu_cores}; the links of client, \
         dispatcher and origin have no rate. The last column of tables shows how busy the machine's cores were, \
         including other load. Ratios depend on the ratio of links to origin; a slower origin would favour systems \
         that send it fewer requests.\n\n\
         {} clients send requests in a closed loop, each over a connection that is replaced after {} \
         requests; every byte of every reply is compared with the expected one. Objects and their order are the \
         same in all rows. Caches are filled with a fast origin and fast links \
         ({} requests for each object on average), then run {} s at the speeds above before {} s \
         are measured.\n\n\
         Caches have the same size: Skep's counts the bytes of objects, Varnish's those of its store including its \
         own data about each object; nginx's has room for as many objects as have this size on average (it checks a \
         size in bytes only every 10 s).",
        machine.text(),
        mbit(settings.node_rate_bits_s),
        settings.origin.delay_ms,
        mbit(settings.origin.rate_bits_s),
        settings.clients,
        settings.per_connection,
        settings.warm_up_rounds,
        settings.settle_ms as f64 / 1000.0,
        settings.window_ms as f64 / 1000.0,
    )
}

/// Ours relative to a peer's: bold where ours loses.
pub(super) fn ratio(ours: f64, peers: f64) -> String {
    let ratio = ours / peers.max(f64::MIN_POSITIVE);
    bold(&format!("{ratio:.2}"), ratio < 0.995)
}

/// A cell, bold if ours loses.
pub(super) fn bold(text: &str, loses: bool) -> String {
    if loses { format!("**{text}**") } else { text.to_owned() }
}

/// A share in percent.
pub(super) fn percent(part: u64, all: u64) -> String {
    format!("{:.1}", part as f64 * 100.0 / all.max(1) as f64)
}

/// A table in Markdown; the first column contains text, the others numbers.
pub(super) fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> =
        (0..head.len()).map(|at| if at == 0 { "---" } else { "--:" }.to_owned()).collect();
    let rows = rows.iter().map(|row| line(row));
    [line(head), line(&rule)].into_iter().chain(rows).collect()
}

/// Converts microseconds to milliseconds.
pub(super) fn ms(us: u64) -> String {
    format!("{:.1}", us as f64 / 1000.0)
}

/// The cells of a row.
pub(super) fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_ours_are_bold_where_a_peer_is_better() {
        let columns = [("req/s", Better::More), ("memory", Better::Neither), ("p99", Better::Less)];
        let rows = [
            (TableRow::SkepProxy, ["99", "1", "7.0"]),
            (TableRow::SkepDirect, ["100", "2", "7.1"]),
            (TableRow::NginxTurns, ["80", "50", "7.0"]),
            (TableRow::Varnish, ["100", "50", "-"]),
        ];
        let rows = rows.map(|(row, cells)| (row, texts(cells))).into();
        let mut page = Page::new("x");
        page.add_compared("row", &columns, rows);
        let lines: Vec<_> = page.text.lines().skip(2).take(4).collect();
        assert_eq!(
            lines,
            [
                "| Skep, proxy | **99** | 1 | 7.0 |",
                "| Skep, direct | 100 | 2 | **7.1** |",
                "| nginx, HAProxy round robin | 80 | 50 | 7.0 |",
                "| Varnish shards, HAProxy | 100 | 50 | - |",
            ]
        );
    }
}
