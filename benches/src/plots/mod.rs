//! Plots as SVG files: bars of contestants, and curves over what was swept.
//!
//! ```text
//!   ┌ title ───────────────────────┬───────────┐
//!   │ chart                        │ ■ names   │
//!   └──────────────────────────────┴───────────┘
//! ```
//!
//! Colours are Okabe and Ito's, which people with any kind of colour vision can tell apart.

mod axis;
mod bars;
mod lines;

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

pub use axis::Axis;
pub use bars::BarChart;
pub use lines::LineChart;

use crate::BenchError;

const WIDTH: u32 = 940;
const HEIGHT: u32 = 430;
const NAMES_WIDTH: u32 = 190;
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
    /// Draws it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        let drawn = match self {
            Self::Bars(chart) => chart.draw(path),
            Self::Lines(chart) => chart.draw(path),
        };
        drawn.map_err(|error| BenchError::File {
            path: path.to_owned(),
            source: std::io::Error::other(error.to_string()),
        })
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, Box<dyn std::error::Error>>;

/// White paper with a title and the names of the colours at the right; gives the rest.
fn paper<'a>(path: &'a Path, title: &str, names: &[String]) -> Drawn<Area<'a>> {
    let root = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(
        title.to_owned(),
        (18, 14),
        (FONT, 18).into_font().color(&INK),
    ))?;
    let (chart, legend) = root.split_horizontally(WIDTH - NAMES_WIDTH);
    for (place, name) in (0_i32..).zip(names) {
        let (y, colour) = (58 + 22 * place, colour(usize::try_from(place)?));
        legend.draw(&Rectangle::new([(6, y), (20, y + 12)], colour.filled()))?;
        legend.draw(&Text::new(
            name.clone(),
            (28, y),
            (FONT, 13).into_font().color(&INK),
        ))?;
    }
    Ok(chart.margin(46, 8, 8, 4))
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
