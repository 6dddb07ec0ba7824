//! Plots as SVG files: bars of contestants, and curves over what was swept.
//!
//! ```text
//!   ┌ title ───────────────────────────────────┐
//!   │ ■ name  ■ name  ■ name                   │
//!   │ chart                                    │
//!   └──────────────────────────────────────────┘
//! ```
//!
//! Colours are Okabe and Ito's, which people with any kind of colour vision can tell apart.

mod axis;
mod bars;
mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use axis::Axis;
pub use bars::BarChart;
pub use lines::LineChart;

use crate::BenchError;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 420;
const EDGE: i32 = 18;
/// A line of names of colours, and about the width of a letter in it.
const NAMES_HEIGHT: i32 = 20;
const LETTER_WIDTH: i32 = 6;
const FONT: &str = "system-ui, sans-serif";
const INK: RGBColor = RGBColor(34, 40, 49);
const FAINT: RGBColor = RGBColor(225, 228, 232);
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(150, 140, 30),
    RGBColor(110, 110, 110),
];

/// Anything that can be drawn.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Groups of bars.
    Bars(BarChart),
    /// Curves.
    Lines(LineChart),
}

impl From<BarChart> for Chart {
    fn from(chart: BarChart) -> Self {
        Self::Bars(chart)
    }
}

impl From<LineChart> for Chart {
    fn from(chart: LineChart) -> Self {
        Self::Lines(chart)
    }
}

impl Chart {
    /// Draws it, as the text of an SVG file.
    ///
    /// # Errors
    /// When something has no place in it.
    pub fn svg(&self) -> Result<String, BenchError> {
        let mut svg = String::new();
        let drawn = match self {
            Self::Bars(chart) => chart.draw(&mut svg),
            Self::Lines(chart) => chart.draw(&mut svg),
        };
        drawn.map_err(|error| BenchError::failed("a chart", error))?;
        Ok(svg)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

/// White paper with a title and, in as many lines as they need, the names of the colours; gives the
/// rest.
fn paper<'a>(svg: &'a mut String, title: &str, names: &[String]) -> Drawn<Area<'a>> {
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(
        title.to_owned(),
        (EDGE, 14),
        (FONT, 18).into_font().color(&INK),
    ))?;
    let right = i32::try_from(WIDTH)? - EDGE;
    let (mut x, mut y) = (EDGE, 44);
    for (place, name) in names.iter().enumerate() {
        let width = 20 + LETTER_WIDTH * i32::try_from(name.chars().count())?;
        if x > EDGE && x + width > right {
            (x, y) = (EDGE, y + NAMES_HEIGHT);
        }
        root.draw(&Rectangle::new(
            [(x, y), (x + 12, y + 12)],
            colour(place).filled(),
        ))?;
        root.draw(&Text::new(
            name.clone(),
            (x + 18, y),
            (FONT, 13).into_font().color(&INK),
        ))?;
        x += width + 18;
    }
    Ok(root.margin(y + NAMES_HEIGHT + 2, 8, 8, 12))
}

fn colour(place: usize) -> RGBColor {
    COLOURS[place % COLOURS.len()]
}

/// The place of `name` in `names`, added at the end if new.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
