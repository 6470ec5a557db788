//! A plot of a load: latency by percentile, and throughput over time.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::BenchReport;
use crate::tally::LatencyTimes;

/// Width and height of each of the two charts, in pixels.
const SIZE: (u32, u32) = (760, 340);

const FONT: (&str, u32) = ("sans-serif", 14);

/// Okabe and Ito's palette, which is distinguishable with colour blindness.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);

/// Points of a percentile curve for each power of ten.
const POINTS: u32 = 20;

/// Number of nines of the rarest percentile that is drawn.
const NINES: u32 = 5;

/// The plot cannot be drawn; with the library's message.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the figure: {0}")]
pub struct LoadPlotError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the plot as SVG.
///
/// # Errors
/// The library fails.
pub fn plot_load(report: &BenchReport) -> Result<String, LoadPlotError> {
    let mut text = String::new();
    draw(report, &mut text).map_err(|error| LoadPlotError(error.to_string()))?;
    Ok(text)
}

fn draw(report: &BenchReport, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(text, (SIZE.0, 2 * SIZE.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(SIZE.1);
    draw_latencies(report, &above)?;
    draw_seconds(report, &below)?;
    root.present()?;
    Ok(())
}

fn draw_latencies(report: &BenchReport, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let (total, first) = (&report.tally.total_us, &report.tally.first_byte_us);
    let top_ms = (total.quantile_us(1.0) as f64 / 1e3).max(0.1);
    let least_ms = (first.quantile_us(0.0) as f64 / 1e3).clamp(0.001, top_ms / 10.0);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: latency by percentile", report.workload), ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..f64::from(NINES), (least_ms..top_ms * 1.2).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc("ms")
        .label_style(FONT)
        .light_line_style(WHITE)
        .x_labels(NINES as usize + 1)
        .x_label_formatter(&|nines| percentile(*nines))
        .draw()?;
    for (name, times, colour) in [("whole response", total, BLUE), ("first byte", first, ORANGE)] {
        let points = points(times).map(|(nines, ms)| (nines, ms.max(least_ms)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(FONT)
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

/// Points by number of nines: 1 is the 90th percentile, 2 the 99th. None beyond the last value.
fn points(times: &LatencyTimes) -> impl Iterator<Item = (f64, f64)> {
    let count = times.count() as f64;
    let nines = (0..=NINES * POINTS).map(|at| f64::from(at) / f64::from(POINTS));
    nines
        .take_while(move |nines| count > 0.0 && 10f64.powf(*nines) <= count * 2.0)
        .map(|nines| (nines, times.quantile_us(1.0 - 10f64.powf(-nines)) as f64 / 1e3))
}

fn percentile(nines: f64) -> String {
    let share = 100.0 * (1.0 - 10f64.powf(-nines));
    let digits = (nines - 2.0).max(0.0) as usize;
    format!("{share:.digits$} %")
}

fn draw_seconds(report: &BenchReport, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let seconds = &report.tally.seconds;
    let end = seconds.len().max(2) as f64;
    let most = |value: fn(&crate::SecondTally) -> u64| seconds.iter().map(value).max().unwrap_or(0);
    let requests = most(|second| second.succeeded + second.failed).max(1) as f64 * 1.15;
    let mebibytes = (most(|second| second.bytes) as f64 / f64::from(1 << 20)).max(0.01) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .caption("answers and bytes in each second, warm-up included", ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .right_y_label_area_size(80)
        .build_cartesian_2d(0.0..end, 0.0..requests)?
        .set_secondary_coord(0.0..end, 0.0..mebibytes);
    chart
        .configure_mesh()
        .x_desc("s")
        .y_desc("answers/s")
        .label_style(FONT)
        .light_line_style(WHITE)
        .draw()?;
    chart.configure_secondary_axes().y_desc("MiB/s").label_style(FONT).draw()?;
    let at = |second: usize| second as f64 + 0.5;
    let points = |value: fn(&crate::SecondTally) -> f64| {
        seconds.iter().enumerate().map(move |(second, it)| (at(second), value(it)))
    };
    let succeeded = LineSeries::new(points(|it| it.succeeded as f64), BLUE.stroke_width(2));
    let failed = LineSeries::new(points(|it| it.failed as f64), RED.stroke_width(2));
    let bytes = points(|it| it.bytes as f64 / f64::from(1 << 20));
    let legend = |colour: RGBColor| {
        move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
    };
    chart.draw_series(succeeded)?.label("right answers").legend(legend(BLUE));
    chart.draw_series(failed)?.label("failures").legend(legend(RED));
    let bytes = LineSeries::new(bytes, ORANGE.stroke_width(2));
    chart.draw_secondary_series(bytes)?.label("MiB (right)").legend(legend(ORANGE));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(FONT)
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::tally::Answer;

    #[test]
    fn a_figure_stands_for_any_load() {
        for requests in [0, 1, 10_000] {
            let mut tally = crate::LoadTally::default();
            for number in 0..requests {
                let total_us = 100 + number % 977;
                tally.answered(Answer { bytes: 1, total_us, ..Answer::default() });
                tally.second(number as usize % 7).succeeded += 1;
            }
            let (workload, url, pace) = ("w <&>".to_owned(), String::new(), String::new());
            let report = BenchReport { workload, url, pace, tally };
            let svg = plot_load(&report).unwrap();
            assert!(svg.contains("w &lt;&amp;&gt;: latency") && svg.ends_with("</svg>\n"), "{svg}");
        }
        assert_eq!(
            [0.0, 1.0, 2.0, 3.0, 5.0].map(percentile),
            ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]
        );
    }
}
