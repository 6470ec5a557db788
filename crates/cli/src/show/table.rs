//! Text tables: columns as wide as their content, and never wider than the terminal.

/// Space between two columns, in characters.
const GAP: usize = 2;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A table of `N` columns.
pub(super) struct TextTable<const N: usize> {
    aligns: [Align; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> TextTable<N> {
    pub(super) fn new(columns: &[(&str, Align); N]) -> Self {
        let heads = columns.map(|(head, _)| head.to_owned());
        Self { aligns: columns.map(|(_, align)| align), rows: vec![heads] }
    }

    pub(super) fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// The table in `columns_max` columns; the widest column is truncated if there is no room. `paint`
    /// returns the escape sequence at the beginning of a row (from 0).
    pub(super) fn text<'a>(&self, columns_max: usize, paint: impl Fn(usize) -> &'a str) -> String {
        let widths = self.widths(columns_max);
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let colour = number.checked_sub(1).map_or("", &paint);
            let cells: Vec<String> = (0..N)
                .map(|at| pad(&cut(&row[at], widths[at]), widths[at], self.aligns[at]))
                .collect();
            out.push_str(colour);
            out.push_str(cells.join(&" ".repeat(GAP)).trim_end());
            out.push_str(if colour.is_empty() { "\n" } else { "\x1b[0m\n" });
        }
        out
    }

    /// The widths of the columns: the widest is reduced first.
    fn widths(&self, columns_max: usize) -> [usize; N] {
        let width = |at: usize| self.rows.iter().map(|row| row[at].chars().count()).max();
        let mut widths: [usize; N] = std::array::from_fn(|at| width(at).unwrap_or(0));
        let room = columns_max.saturating_sub(GAP * (N - 1));
        while widths.iter().sum::<usize>() > room {
            match widths.iter_mut().max() {
                Some(widest) if *widest > 1 => *widest -= 1,
                _ => break,
            }
        }
        widths
    }
}

/// `text` in at most `width` characters, the last of which indicates a truncation. Control characters, which
/// could move the cursor, are omitted.
pub(super) fn cut(text: &str, width: usize) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.chars().count() <= width {
        return text;
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

fn pad(text: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable<2> {
        let mut table = TextTable::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(["a".into(), "100".into()]);
        table.row(["a-long-name".into(), "2".into()]);
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_texts() {
        assert_eq!(
            table().text(80, |_| ""),
            "NAME           N\na            100\na-long-name    2\n"
        );
    }

    #[test]
    fn the_widest_column_gives_way() {
        assert_eq!(table().text(10, |_| ""), "NAME     N\na      100\na-lo…    2\n");
    }

    #[test]
    fn colours_end_with_their_row() {
        let text = table().text(80, |row| if row == 1 { "\x1b[31m" } else { "" });
        assert_eq!(text.matches('\x1b').count(), 2);
        assert!(text.ends_with("\x1b[31ma-long-name    2\x1b[0m\n"), "{text:?}");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(cut("a\x1b[2Jb\n", 80), "a[2Jb");
    }
}
