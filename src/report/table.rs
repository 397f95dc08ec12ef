//! Tables as kubectl prints them.

use std::iter;

use jiff::SignedDuration;

/// A table with its header as text, cells padded to columns; the last column is not padded. Each row has a color, which is an escape
/// sequence of the terminal, or empty.
pub fn text<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = ([String; N], &'static str)>) -> String {
    let rows: Vec<_> = iter::once((header.map(str::to_owned), "")).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|(row, _)| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |(row, color): &([String; N], &str)| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let line = cells.join("   ");
        let line = line.trim_end();
        if color.is_empty() { format!("{line}\n") } else { format!("{color}{line}\x1b[0m\n") }
    };
    rows.iter().map(line).collect()
}

/// A time span in its largest unit, or in two units if one is too coarse: `45s`, `3m20s`, `50m`, `5h10m`, `3d`.
pub fn age(span: SignedDuration) -> String {
    let secs = span.as_secs().max(0);
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    match secs {
        0..60 => format!("{secs}s"),
        60..600 => format!("{minutes}m{}s", secs % 60),
        600..7200 => format!("{minutes}m"),
        7200..36_000 => format!("{hours}h{}m", minutes % 60),
        36_000..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let row = |cells: [&str; 3], color| (cells.map(str::to_owned), color);
        let rows = [row(["KubeletHealthy", "5s", "é"], ""), row(["É", "10m", ""], "\x1b[31m")];
        let expected =
            "TYPE             AGE   MESSAGE\nKubeletHealthy   5s    é\n\x1b[31mÉ                10m\x1b[0m\n";
        assert_eq!(text(["TYPE", "AGE", "MESSAGE"], rows), expected);
    }

    #[test]
    fn an_age_has_the_precision_that_matters() {
        let age_of = |secs| age(SignedDuration::from_secs(secs));
        let ages = [-5, 59, 60, 599, 600, 7199, 7200, 35_999, 36_000, 172_799, 172_800].map(age_of);
        assert_eq!(ages, ["0s", "59s", "1m0s", "9m59s", "10m", "119m", "2h0m", "9h59m", "10h", "47h", "2d"]);
    }
}
