//! A tree of calls as an SVG file: callers below what they call, as wide as their samples.
//!
//! It stands alone: colours by owner with their names, every call's full name and share under the
//! pointer, and a script that shows one call alone when it is clicked.

use std::fmt::Write;

use super::stacks::{Call, Stacks};
use crate::instructions::Owners;
use crate::report::escaped;

const WIDTH: f64 = 1400.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 50.0;
const LEGEND_ROW: f64 = 18.0;
const LEGEND_COLUMNS: usize = 4;
/// Narrower calls are left out.
const WIDTH_MIN: f64 = 0.3;
const LETTER: f64 = 6.3;
const SCRIPT: &str = include_str!("flame.js");

/// Draws it.
pub(super) fn drawing(title: &str, stacks: &Stacks) -> String {
    let mut drawing = Drawing {
        calls: String::new(),
        all: stacks.count() as f64,
        rows: stacks.0.depth(),
        owners: Vec::new(),
        legend_rows: Owners::COUNT.div_ceil(LEGEND_COLUMNS),
    };
    drawing.calls_of(&stacks.0, 0.0, 0);
    drawing.page(title)
}

struct Drawing {
    calls: String,
    all: f64,
    rows: usize,
    /// Those that have a call.
    owners: Vec<usize>,
    legend_rows: usize,
}

impl Drawing {
    fn top(&self) -> f64 {
        HEAD + self.legend_rows as f64 * LEGEND_ROW
    }

    /// Draws what `caller` calls, from `left` on, in a row above its own.
    fn calls_of(&mut self, caller: &Call, mut left: f64, row: usize) {
        for (name, call) in &caller.calls {
            let width = call.count as f64 / self.all * WIDTH;
            if width >= WIDTH_MIN {
                self.call(name, call, left, row);
                self.calls_of(call, left, row + 1);
            }
            left += width;
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of letters, and float casts saturate"
    )]
    fn call(&mut self, name: &str, call: &Call, left: f64, row: usize) {
        let width = call.count as f64 / self.all * WIDTH;
        let owner = if call.is_kernel {
            Owners::KERNEL
        } else {
            Owners::of(name)
        };
        // The threads, at the bottom, are nobody's.
        let colour = if row == 0 {
            "#ddd".to_owned()
        } else {
            colour(owner)
        };
        if row > 0 && !self.owners.contains(&owner) {
            self.owners.push(owner);
        }
        let y = self.top() + (self.rows - 1 - row) as f64 * ROW;
        let share = 100.0 * call.count as f64 / self.all;
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        let (full, shown) = (escaped(name), escaped(&cut(name, letters)));
        // Writing to a string does not fail.
        writeln!(
            self.calls,
            "<g class=\"call\" data-name=\"{full}\" data-x=\"{left:.2}\" data-w=\"{width:.2}\" data-row=\"{row}\">\
             <title>{full}: {share:.2}%, {count} samples, {own} of its own</title>\
             <rect x=\"{left:.2}\" y=\"{y}\" width=\"{drawn:.2}\" height=\"{height}\" fill=\"{colour}\" rx=\"1.5\"/>\
             <text x=\"{text:.2}\" y=\"{base}\">{shown}</text></g>",
            count = call.count,
            own = call.own,
            drawn = (width - 0.5).max(0.1),
            height = ROW - 1.0,
            text = left + 3.0,
            base = y + 12.0,
        )
        .ok();
    }

    fn page(mut self, title: &str) -> String {
        let height = self.top() + self.rows as f64 * ROW + 10.0;
        let mut page = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" data-width=\"{WIDTH}\" font-family=\"system-ui, sans-serif\" font-size=\"11\">\n\
             <style>.call {{ cursor: pointer }} .call:hover rect {{ stroke: #222; stroke-width: 1 }} \
             text {{ fill: #222831; pointer-events: none }}</style>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
             <text x=\"4\" y=\"20\" font-size=\"16\">{}</text>\n\
             <text x=\"4\" y=\"38\">callers below what they call; click a call to see it alone, the background to \
             see everything</text>\n",
            escaped(title)
        );
        self.owners.sort_unstable();
        for (place, owner) in self.owners.iter().enumerate() {
            let x = 4.0 + (place % LEGEND_COLUMNS) as f64 * WIDTH / LEGEND_COLUMNS as f64;
            let y = HEAD + (place / LEGEND_COLUMNS) as f64 * LEGEND_ROW;
            writeln!(
                page,
                "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
                colour(*owner),
                x + 18.0,
                y + 10.0,
                escaped(Owners::name(*owner))
            )
            .ok();
        }
        page.push_str(&self.calls);
        page.push_str(&format!("<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n"));
        page
    }
}

/// Colours as far from each other as there are owners; neighbours in the list are not neighbours on
/// the wheel.
fn colour(owner: usize) -> String {
    if owner + 1 == Owners::COUNT {
        return "#d6d6d6".to_owned();
    }
    let hue = owner * 7 % Owners::COUNT * 360 / Owners::COUNT;
    let lightness = if owner.is_multiple_of(2) { 70 } else { 78 };
    format!("hsl({hue}, 62%, {lightness}%)")
}

/// As many letters as there is room for, the last one a sign that there are more.
fn cut(name: &str, letters: usize) -> String {
    if letters < 3 {
        return String::new();
    }
    match name.char_indices().nth(letters) {
        None => name.to_owned(),
        Some(_) => name.chars().take(letters - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_as_wide_as_its_samples_and_its_name_cannot_break_the_file() {
        let script = "a \n\t 1 <b as \"C\">::d (x)\n\na \n\t 1 e (x)\n\n";
        let page = drawing("t", &Stacks::of(script));
        assert!(
            page.contains("<title>a: 100.00%, 2 samples, 0 of its own</title>"),
            "{page}"
        );
        assert!(
            page.contains("data-name=\"&lt;b as &quot;C&quot;&gt;::d\" data-x=\"0.00\" data-w=\"700.00\"")
        );
        assert!(page.contains("data-name=\"e\" data-x=\"700.00\" data-w=\"700.00\""));
    }

    #[test]
    fn a_name_is_cut_to_its_room() {
        assert_eq!(
            [cut("abcdef", 2), cut("abcdef", 4), cut("abc", 4)],
            ["", "abc…", "abc"]
        );
    }
}
