//! Line plots as SVG, in distinguishable colours.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use super::Failure;

/// Width and height in pixels, and the width of the names beside the lines.
const SIZE: (u32, u32) = (940, 420);
const NAMES_WIDTH: u32 = 220;
const FONT: (&str, u32) = ("sans-serif", 14);

/// Okabe and Ito's colours, without the yellow, which is invisible on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(130, 60, 20),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
];

/// A plot of lines.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    /// The beginning of the y axis; below all points.
    pub(super) y_begin: f64,
    pub(super) lines: Vec<Line>,
    /// Marked positions on the x axis, with descriptions of the events.
    pub(super) marks: Vec<(f64, String)>,
}

/// A line of a plot.
pub(super) struct Line {
    pub(super) name: String,
    /// The number of its colour, the same in all plots.
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// Whether each point is marked.
    pub(super) has_dots: bool,
}

impl Plot {
    /// Writes the plot to a file.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        self.draw(path).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (area, names) = root.split_horizontally(SIZE.0 - NAMES_WIDTH);
        let (x, y) = self.ranges();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(x, y.clone())?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .label_style(FONT)
            .light_line_style(WHITE)
            .x_label_formatter(&|it| number(*it))
            .y_label_formatter(&|it| number(*it))
            .draw()?;
        for (place, words) in &self.marks {
            let line = [(*place, y.start), (*place, y.end)];
            chart.draw_series(LineSeries::new(line, BLACK.mix(0.4)))?;
            let text = Text::new(format!(" {words}"), (*place, y.end), ("sans-serif", 12));
            chart.draw_series([text])?;
        }
        for line in &self.lines {
            let dots = if line.has_dots { 3 } else { 0 };
            let series = LineSeries::new(line.points.iter().copied(), line.style());
            chart.draw_series(series.point_size(dots))?;
        }
        for (at, line) in (0..).map(|number: i32| 50 + 24 * number).zip(&self.lines) {
            names.draw(&PathElement::new([(0, at), (18, at)], line.style()))?;
            names.draw(&Text::new(line.name.clone(), (24, at - 7), FONT))?;
        }
        Ok(root.present()?)
    }

    /// The ranges of the axes.
    fn ranges(&self) -> (Range<f64>, Range<f64>) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let (x, y) = (most(|point| point.0), most(|point| point.1));
        (0.0..x * 1.02, self.y_begin..y + (y - self.y_begin) * 0.1)
    }
}

impl Line {
    fn style(&self) -> ShapeStyle {
        COLOURS[self.colour % COLOURS.len()].stroke_width(2)
    }
}

/// A number without meaningless decimals.
fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 { format!("{value:.0}") } else { format!("{value:.1}") }
}
