//! A plot of an advice: for each policy the mean and the 99th percentile of response times with their
//! intervals, and the share served from memory.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use skep_site_sim::Estimate;

use crate::advice::PolicyAdvice;
use crate::figures::AdvisedPolicy;

/// Widths of the columns, height of a row, and margins above and below the rows, in pixels.
const NAMES: i32 = 190;
const TIMES: i32 = 460;
const GAP: i32 = 30;
const HITS: i32 = 160;
const MARGIN: i32 = 20;
const ROW: i32 = 22;
const ABOVE: i32 = 70;
const BELOW: i32 = 56;

const FONT: (&str, u32) = ("sans-serif", 13);
const TITLE: (&str, u32) = ("sans-serif", 17);

/// Okabe and Ito's palette, which is distinguishable with colour blindness.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const SHADE: RGBColor = RGBColor(230, 240, 246);
const GRID: RGBColor = RGBColor(215, 215, 215);

/// The plot cannot be drawn; with the library's message.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the picture: {0}")]
pub struct AdvicePlotError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws the plot as SVG, with a title.
///
/// # Errors
/// The library fails.
pub fn plot_advice(advice: &PolicyAdvice, title: &str) -> Result<String, AdvicePlotError> {
    let mut text = String::new();
    draw(advice, title, &mut text).map_err(|error| AdvicePlotError(error.to_string()))?;
    Ok(text)
}

fn draw(advice: &PolicyAdvice, title: &str, text: &mut String) -> Drawn {
    let rows = advice.policies.len() as i32;
    let (width, height) = (MARGIN * 2 + NAMES + TIMES + GAP + HITS, ABOVE + rows * ROW + BELOW);
    let root = SVGBackend::with_string(text, (width as u32, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    write(&root, title, (MARGIN, 16), TITLE, HPos::Left)?;
    let scale = TimeScale::of(&advice.policies);
    draw_heads(&root)?;
    draw_shade(&root, advice)?;
    draw_axes(&root, scale, ABOVE + rows * ROW)?;
    for (row, policy) in (0..).zip(&advice.policies) {
        draw_policy(&root, scale, policy, ABOVE + row * ROW + ROW / 2)?;
    }
    root.present()?;
    Ok(())
}

/// Response times on a logarithmic axis, in decades of seconds.
#[derive(Clone, Copy)]
struct TimeScale {
    low: f64,
    high: f64,
}

impl TimeScale {
    fn of(policies: &[AdvisedPolicy]) -> Self {
        let all = policies.iter().flat_map(|it| [it.mean_s, it.p99_s]);
        let logs = all.map(|it| it.mean.max(1e-9).log10()).filter(|it| it.is_finite());
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
            (low.min(it), high.max(it))
        });
        if low > high {
            return Self { low: -3.0, high: 0.0 };
        }
        Self { low: low - 0.15, high: high + 0.15 }
    }

    fn at(self, seconds: f64) -> i32 {
        let share = (seconds.max(1e-9).log10() - self.low) / (self.high - self.low);
        MARGIN + NAMES + (share.clamp(0.0, 1.0) * f64::from(TIMES)) as i32
    }

    /// 1, 2 and 5 of each decade, or only 1 if there are many decades.
    fn ticks(self) -> impl Iterator<Item = f64> {
        let steps: &[f64] = if self.high - self.low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = decades.flat_map(|decade| steps.iter().map(move |it| it * 10f64.powi(decade)));
        all.filter(move |it| (self.low..=self.high).contains(&it.log10()))
    }
}

fn draw_heads(root: &Area<'_>) -> Drawn {
    let (times, y) = (MARGIN + NAMES, ABOVE - 22);
    write(root, "response time:", (times, y), FONT, HPos::Left)?;
    root.draw(&Circle::new((times + 108, y), 4, BLUE.filled()))?;
    write(root, "mean", (times + 118, y), FONT, HPos::Left)?;
    root.draw(&Circle::new((times + 172, y), 4, ORANGE.stroke_width(2)))?;
    write(root, "99th percentile, with 95 % intervals", (times + 182, y), FONT, HPos::Left)?;
    write(root, "bytes from memory", (times + TIMES + GAP, y), FONT, HPos::Left)
}

/// Shades the row of the recommended policy.
fn draw_shade(root: &Area<'_>, advice: &PolicyAdvice) -> Drawn {
    let row = advice.policies.iter().position(|it| it.policy == advice.verdict.policy);
    let y = ABOVE + row.unwrap_or(0) as i32 * ROW;
    let (left, right) = (MARGIN - 6, MARGIN + NAMES + TIMES + GAP + HITS + 6);
    root.draw(&Rectangle::new([(left, y), (right, y + ROW)], SHADE.filled()))?;
    Ok(())
}

fn draw_axes(root: &Area<'_>, scale: TimeScale, bottom: i32) -> Drawn {
    for seconds in scale.ticks() {
        let x = scale.at(seconds);
        root.draw(&PathElement::new([(x, ABOVE), (x, bottom)], GRID.stroke_width(1)))?;
        write(root, &time(seconds), (x, bottom + 12), FONT, HPos::Center)?;
    }
    for percent in [0, 50, 100] {
        let x = hits_at(f64::from(percent) / 100.0);
        root.draw(&PathElement::new([(x, ABOVE), (x, bottom)], GRID.stroke_width(1)))?;
        write(root, &format!("{percent} %"), (x, bottom + 12), FONT, HPos::Center)?;
    }
    let about = "shaded: recommended; lower is better";
    write(root, about, (MARGIN + NAMES, bottom + 36), FONT, HPos::Left)
}

fn draw_policy(root: &Area<'_>, scale: TimeScale, policy: &AdvisedPolicy, y: i32) -> Drawn {
    write(root, policy.policy, (MARGIN + NAMES - 10, y), FONT, HPos::Right)?;
    for (estimate, colour, is_filled) in
        [(policy.p99_s, ORANGE, false), (policy.mean_s, BLUE, true)]
    {
        draw_interval(root, scale, estimate, colour, y)?;
        let style = if is_filled { colour.filled() } else { colour.stroke_width(2) };
        root.draw(&Circle::new((scale.at(estimate.mean), y), 4, style))?;
    }
    let share = policy.hit_share.mean;
    let share = if share.is_finite() { share } else { 0.0 };
    let bar = [(hits_at(0.0), y - 6), (hits_at(share), y + 6)];
    root.draw(&Rectangle::new(bar, BLUE.mix(0.6).filled()))?;
    Ok(())
}

fn draw_interval(
    root: &Area<'_>,
    scale: TimeScale,
    estimate: Estimate,
    colour: RGBColor,
    y: i32,
) -> Drawn {
    if !estimate.half_width.is_finite() {
        return Ok(());
    }
    let ends = [estimate.mean - estimate.half_width, estimate.mean + estimate.half_width];
    let [low, high] = ends.map(|it| scale.at(it));
    root.draw(&PathElement::new([(low, y), (high, y)], colour.stroke_width(2)))?;
    Ok(())
}

fn hits_at(share: f64) -> i32 {
    MARGIN + NAMES + TIMES + GAP + (share * f64::from(HITS)) as i32
}

fn write(root: &Area<'_>, text: &str, at: (i32, i32), font: (&str, u32), side: HPos) -> Drawn {
    let style = font.into_text_style(root).pos(Pos::new(side, VPos::Center));
    root.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

fn time(seconds: f64) -> String {
    match seconds {
        small if small < 0.9e-3 => format!("{:.0} us", small * 1e6),
        middle if middle < 0.9 => format!("{:.0} ms", middle * 1e3),
        large => format!("{large:.0} s"),
    }
}
