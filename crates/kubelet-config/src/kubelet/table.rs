//! Tables that are data files: a line each, columns separated by blanks, comments after `#`.

use super::version::Minor;

/// The columns of each line; the last one is the rest of the line.
pub(crate) fn rows<const N: usize>(text: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut rest = line;
        std::array::from_fn(|index| {
            let (column, after) = rest.split_once(' ').filter(|_| index + 1 < N).unwrap_or((rest, ""));
            rest = after.trim_start();
            column
        })
    })
}

/// A minor release; `None` for what is no number, such as a dash.
pub(super) fn minor(column: &str) -> Option<Minor> {
    column.parse().ok().map(Minor)
}

/// What a column says, unless it is a dash.
pub(super) fn given(column: &'static str) -> Option<&'static str> {
    Some(column).filter(|column| *column != "-")
}
