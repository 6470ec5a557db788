//! A figure as SVG: mean response time over size, with intervals of confidence.

use std::ops::Range;

use plotters::prelude::*;

/// Width and height, in pixels, and the width of the names beside the lines.
const SIZE: (u32, u32) = (940, 420);
const NAMES_WIDTH: u32 = 220;
const FONT: (&str, u32) = ("sans-serif", 14);

/// Pixels of the ends of an interval, to each side.
const CAP: u32 = 4;

/// Okabe and Ito's colours, which people tell apart, without the yellow that white swallows.
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Mean response time over size.
pub(super) struct Figure {
    pub(super) title: String,
    pub(super) lines: Vec<Line>,
}

/// One label.
pub(super) struct Line {
    pub(super) name: String,
    /// Its colour's number, the same in all figures.
    pub(super) colour: usize,
    /// Size in bytes, mean and half the width of its interval in milliseconds.
    pub(super) points: Vec<(u64, f64, f64)>,
}

impl Figure {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// Its text; an error is that of the library.
    pub(super) fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (area, names) = root.split_horizontally(SIZE.0 - NAMES_WIDTH);
        let (x, y) = self.ranges();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(x.log_scale().base(2.0), y)?;
        chart
            .configure_mesh()
            .x_desc("size")
            .y_desc("mean response time in ms, interval of 95 %")
            .label_style(FONT)
            .light_line_style(WHITE)
            .x_label_formatter(&|it| size(*it))
            .y_label_formatter(&|it| number(*it))
            .draw()?;
        for line in &self.lines {
            let points = line.points.iter().map(|(size, mean, _)| (axis(*size), *mean));
            chart.draw_series(LineSeries::new(points, line.style()).point_size(3))?;
            let bars = line.points.iter().filter(|(_, _, half)| *half > 0.0);
            chart.draw_series(bars.map(|(size, mean, half)| {
                let ends = (mean - half, *mean, mean + half);
                ErrorBar::new_vertical(axis(*size), ends.0, ends.1, ends.2, line.style(), CAP * 2)
            }))?;
        }
        for (at, line) in (0..).map(|number: i32| 50 + 24 * number).zip(&self.lines) {
            names.draw(&PathElement::new([(0, at), (18, at)], line.style()))?;
            names.draw(&Text::new(line.name.clone(), (24, at - 7), FONT))?;
        }
        root.present()?;
        Ok(())
    }

    /// All points with their intervals; half a power of two beside the smallest and the largest size.
    fn ranges(&self) -> (Range<f64>, Range<f64>) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let sizes = || points().map(|point| axis(point.0));
        let (least, most) = (sizes().fold(f64::MAX, f64::min), sizes().fold(1.0, f64::max));
        let top = points().map(|(_, mean, half)| mean + half).fold(f64::MIN_POSITIVE, f64::max);
        let bottom = points().map(|(_, mean, half)| mean - half).fold(0.0, f64::min);
        (least.min(most) / 1.41..most * 1.41, bottom..top * 1.1)
    }
}

impl Line {
    fn style(&self) -> ShapeStyle {
        COLOURS[self.colour % COLOURS.len()].stroke_width(2)
    }
}

/// A size on a logarithmic axis, where there is no zero.
fn axis(size_bytes: u64) -> f64 {
    size_bytes.max(1) as f64
}

/// A size with its unit, as the axis shows it.
fn size(bytes: f64) -> String {
    match bytes {
        small if small < 1024.0 => format!("{small:.0} B"),
        middle if middle < 1024.0 * 1024.0 => format!("{} KiB", number(middle / 1024.0)),
        large => format!("{} MiB", number(large / 1024.0 / 1024.0)),
    }
}

/// Without decimals that say nothing.
fn number(value: f64) -> String {
    match value {
        whole if whole.fract().abs() < 1e-9 => format!("{whole:.0}"),
        small if small.abs() < 1.0 => format!("{small:.2}"),
        large => format!("{large:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_labels_and_stands_for_any_points() {
        for points in [vec![(0, 0.0, 0.0)], vec![(50, 1.0, 0.0), (1 << 20, 90.0, 100.0)]] {
            let line = Line { name: "lard & <co>".to_owned(), colour: 9, points };
            let svg = Figure { title: "T".to_owned(), lines: vec![line] }.svg().unwrap_or_default();
            assert!(svg.contains("lard &amp; &lt;co&gt;") && svg.ends_with("</svg>\n"), "{svg}");
        }
        assert!(Figure { title: String::new(), lines: Vec::new() }.is_empty());
    }
}
