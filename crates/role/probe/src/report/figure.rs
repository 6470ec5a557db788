//! A figure as SVG: mean response time over size, with confidence intervals, or a value of nodes over time.

use std::ops::Range;

use plotters::chart::ChartContext;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// Width of the chart and minimum height of the figure, in pixels.
const CHART_WIDTH: u32 = 720;
const HEIGHT_MIN: u32 = 420;

/// Names beside the chart, in pixels: offset of the first, height of each, and width of its mark.
const NAMES_TOP: u32 = 50;
const NAME_HEIGHT: u32 = 24;
const NAME_MARK_WIDTH: u32 = 40;

/// Width of the widest ordinary letter in [`FONT`], and of any other character, in pixels.
const LETTER_WIDTH: u32 = 10;
const OTHER_WIDTH: u32 = 15;

/// Labels on the size axis, at most, so that they do not overlap.
const SIZES_MAX: usize = 10;

const FONT: (&str, u32) = ("sans-serif", 14);

/// Half the width of the end caps of an interval, in pixels.
const CAP: u32 = 4;

/// Corners of marks, in pixels from the point: a disc, a square, triangles that point up and down, a rhombus.
const MARKS: [&[(i32, i32)]; 5] = [
    &[(4, 2), (2, 4), (-2, 4), (-4, 2), (-4, -2), (-2, -4), (2, -4), (4, -2)],
    &[(4, 4), (-4, 4), (-4, -4), (4, -4)],
    &[(0, -6), (5, 4), (-5, 4)],
    &[(0, 6), (5, -4), (-5, -4)],
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
];

/// Okabe and Ito's palette, which is distinguishable with colour blindness, without the yellow, which is
/// invisible on white.
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Means over size or time.
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) axis: Axis,
    pub(super) lines: Vec<Line>,
}

/// The horizontal axis.
#[derive(Clone, Copy)]
pub(super) enum Axis {
    /// Bytes, by powers of two; the vertical axis has response times in milliseconds.
    Size,
    /// Hours; points that are more than one step apart are not connected.
    Hours { y_label: &'static str, step_hours: f64 },
}

/// One label.
pub(super) struct Line {
    pub(super) name: String,
    /// Index of its colour and mark, the same in all figures.
    pub(super) number: usize,
    /// Position on the axis, mean, and half the width of its interval.
    pub(super) points: Vec<(f64, f64, f64)>,
}

impl Figure {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// The figure as text; an error is that of the library.
    pub(super) fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let (width, height) = self.size();
        let root = SVGBackend::with_string(text, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (area, names) = root.split_horizontally(CHART_WIDTH);
        let (x, y) = self.ranges();
        let mut builder = ChartBuilder::on(&area);
        builder.caption(&self.title, ("sans-serif", 18)).margin(10);
        builder.x_label_area_size(40).y_label_area_size(100);
        match self.axis {
            Axis::Size => {
                let x = x.log_scale().base(2.0).with_key_points(self.sizes());
                let chart = builder.build_cartesian_2d(x, y)?;
                let y_label = "mean response time in ms, interval of 95 %";
                self.draw_lines(chart, "size", y_label, size)?;
            }
            Axis::Hours { y_label, .. } => {
                let chart = builder.build_cartesian_2d(x, y)?;
                self.draw_lines(chart, "hours", y_label, number)?;
            }
        }
        for (at, line) in (NAMES_TOP..).step_by(NAME_HEIGHT as usize).zip(&self.lines) {
            let at = i32::try_from(at)?;
            names.draw(&PathElement::new([(4, at), (28, at)], line.style()))?;
            let mark = Polygon::new(line.mark(), line.style().filled());
            names.draw(&(EmptyElement::at((16, at)) + mark))?;
            names.draw(&Text::new(line.name.clone(), (36, at - 7), FONT))?;
        }
        root.present()?;
        Ok(())
    }

    fn draw_lines<X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
        &self,
        mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
        x_label: &str,
        y_label: &str,
        place: fn(f64) -> String,
    ) -> Result<(), Box<dyn std::error::Error>> {
        chart
            .configure_mesh()
            .x_desc(x_label)
            .y_desc(y_label)
            .label_style(FONT)
            .light_line_style(WHITE)
            .x_label_formatter(&|it| place(*it))
            .y_label_formatter(&|it| number(*it))
            .draw()?;
        for line in &self.lines {
            let at = |x: f64| self.axis.at(x);
            for run in line.points.chunk_by(|one, next| self.axis.joins(one.0, next.0)) {
                let points = run.iter().map(|(x, mean, _)| (at(*x), *mean));
                chart.draw_series(LineSeries::new(points, line.style()))?;
            }
            let points = line.points.iter().map(|(x, mean, _)| (at(*x), *mean));
            chart.draw_series(points.map(|at| {
                EmptyElement::at(at) + Polygon::new(line.mark(), line.style().filled())
            }))?;
            let bars = line.points.iter().filter(|(_, _, half)| *half > 0.0);
            chart.draw_series(bars.map(|(x, mean, half)| {
                // A time cannot be negative.
                let ends = ((mean - half).max(0.0), *mean, mean + half);
                ErrorBar::new_vertical(at(*x), ends.0, ends.1, ends.2, line.style(), CAP * 2)
            }))?;
        }
        Ok(())
    }

    /// Width and height in pixels, with room for all names.
    fn size(&self) -> (u32, u32) {
        let letter = |it: char| if it.is_ascii() { LETTER_WIDTH } else { OTHER_WIDTH };
        let widths = self.lines.iter().map(|line| line.name.chars().map(letter).sum::<u32>());
        let names = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
        let height = NAMES_TOP.saturating_add(names.saturating_mul(NAME_HEIGHT));
        (CHART_WIDTH + NAME_MARK_WIDTH + widths.max().unwrap_or(0), height.max(HEIGHT_MIN))
    }

    /// Sizes with a label on the axis: the measured ones, except those that are too close together.
    fn sizes(&self) -> Vec<f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let mut sizes: Vec<f64> = points.map(|point| self.axis.at(point.0)).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        let (x, _) = self.ranges();
        let apart = (x.end / x.start).powf(1.0 / SIZES_MAX as f64);
        let mut kept: Vec<f64> = Vec::new();
        for size in sizes {
            if kept.last().is_none_or(|last| size / last >= apart) {
                kept.push(size);
            }
        }
        kept
    }

    /// The range of all points with their intervals, and a margin: half a power of two beside the smallest
    /// and the largest size, or a step.
    fn ranges(&self) -> (Range<f64>, Range<f64>) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let places = || points().map(|point| self.axis.at(point.0));
        let (least, most) =
            (places().fold(f64::MAX, f64::min), places().fold(self.axis.least(), f64::max));
        let least = least.min(most);
        let top = points().map(|(_, mean, half)| mean + half).fold(f64::MIN_POSITIVE, f64::max);
        let x = match self.axis {
            Axis::Size => least / 1.41..most * 1.41,
            Axis::Hours { step_hours, .. } => least - step_hours..most + step_hours,
        };
        (x, 0.0..top * 1.1)
    }
}

impl Axis {
    /// A position on it; a logarithmic axis has no zero.
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Size => x.max(1.0),
            Self::Hours { .. } => x,
        }
    }

    fn least(self) -> f64 {
        match self {
            Self::Size => 1.0,
            Self::Hours { .. } => 0.0,
        }
    }

    /// Whether a line connects two consecutive points.
    fn joins(self, one: f64, next: f64) -> bool {
        match self {
            Self::Size => true,
            Self::Hours { step_hours, .. } => next - one < step_hours * 1.5,
        }
    }
}

impl Line {
    fn style(&self) -> ShapeStyle {
        COLOURS[self.number % COLOURS.len()].stroke_width(2)
    }

    /// The mark of its points: after the last colour the first one is used again, with another mark.
    fn mark(&self) -> &'static [(i32, i32)] {
        MARKS[self.number / COLOURS.len() % MARKS.len()]
    }
}

/// A size with its unit, for the axis.
fn size(bytes: f64) -> String {
    match bytes {
        small if small < 1024.0 => format!("{small:.0} B"),
        middle if middle < 1024.0 * 1024.0 => format!("{} KiB", number(middle / 1024.0)),
        large => format!("{} MiB", number(large / 1024.0 / 1024.0)),
    }
}

/// A number without insignificant decimals.
fn number(value: f64) -> String {
    match value {
        whole if whole.fract().abs() < 1e-9 => format!("{whole:.0}"),
        small if small.abs() < 1.0 => format!("{small:.2}"),
        large => format!("{large:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn figure(names: &[&str], points: &[(u64, f64, f64)]) -> Figure {
        let points: Vec<_> = points.iter().map(|(x, y, half)| (*x as f64, *y, *half)).collect();
        let line = |(number, name): (usize, &&str)| Line {
            name: (*name).to_owned(),
            number,
            points: points.clone(),
        };
        Figure {
            title: "T".to_owned(),
            axis: Axis::Size,
            lines: names.iter().enumerate().map(line).collect(),
        }
    }

    #[test]
    fn a_figure_has_its_labels_and_stands_for_any_points() {
        for points in [vec![(0, 0.0, 0.0)], vec![(50, 1.0, 0.0), (1 << 20, 90.0, 100.0)]] {
            let svg = figure(&["lard & <co>"], &points).svg().unwrap_or_default();
            assert!(svg.contains("lard &amp; &lt;co&gt;") && svg.ends_with("</svg>\n"), "{svg}");
        }
        assert!(Figure { title: String::new(), axis: Axis::Size, lines: Vec::new() }.is_empty());
    }

    #[test]
    fn there_is_room_for_all_names_and_no_two_lines_look_the_same() {
        let long = "w".repeat(40);
        let names: Vec<&str> = (0..30).map(|_| long.as_str()).collect();
        let figure = figure(&names, &[(50, 1.0, 0.0)]);
        let (width, height) = figure.size();
        assert!(width >= CHART_WIDTH + NAME_MARK_WIDTH + 400, "{width}");
        assert!(height >= NAMES_TOP + 30 * NAME_HEIGHT, "{height}");
        let svg = figure.svg().unwrap_or_default();
        assert_eq!(svg.matches(long.as_str()).count(), 30);
        let looks: BTreeSet<_> = figure
            .lines
            .iter()
            .map(|line| (line.number % COLOURS.len(), line.mark().to_vec()))
            .collect();
        assert_eq!(looks.len(), 30);
    }

    #[test]
    fn the_axes_begin_at_zero_and_name_the_sizes_that_were_measured() {
        let few = figure(&["a"], &[(50, 1.0, 9.0), (100_000, 2.0, 0.0)]);
        assert_eq!(few.ranges().1.start, 0.0);
        assert_eq!(few.sizes(), [50.0, 100_000.0]);
        let svg = few.svg().unwrap_or_default();
        assert!(svg.contains("50 B") && svg.contains("97.7 KiB") && !svg.contains("\n-"), "{svg}");
        assert_eq!(figure(&["a"], &[(7, 1.0, 0.0)]).sizes(), [7.0]);
        let many: Vec<_> = (1..1_000).map(|size| (size, 1.0, 0.0)).collect();
        let sizes = figure(&["a"], &many).sizes();
        assert!((4..=SIZES_MAX + 1).contains(&sizes.len()), "{sizes:?}");
    }

    #[test]
    fn values_over_time_are_joined_where_no_step_is_missing() {
        let axis = Axis::Hours { y_label: "hits & more", step_hours: 0.5 };
        let points = vec![(0.0, 10.0, 0.0), (0.5, 20.0, 0.0), (2.0, 30.0, 0.0)];
        let lines = vec![Line { name: "a".to_owned(), number: 0, points }];
        let figure = Figure { title: "T".to_owned(), axis, lines };
        assert_eq!(figure.ranges().0, -0.5..2.5);
        let svg = figure.svg().unwrap_or_default();
        assert!(svg.contains("hits &amp; more") && svg.contains("hours"), "{svg}");
        let line = &figure.lines[0];
        let runs: Vec<usize> =
            line.points.chunk_by(|one, next| axis.joins(one.0, next.0)).map(<[_]>::len).collect();
        assert_eq!(runs, [2, 1]);
    }
}
