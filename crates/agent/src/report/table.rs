//! Tables as kubectl prints them.

use jiff::SignedDuration;

/// The rows as lines, cells padded to columns. The last column is not padded.
pub fn lines<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The lines in their colors, which are escape sequences of the terminal, or empty.
pub fn colored(lines: Vec<String>, colors: impl IntoIterator<Item = &'static str>) -> Vec<String> {
    let paint = |(line, color): (String, &str)| if color.is_empty() { line } else { format!("{color}{line}\x1b[0m") };
    lines.into_iter().zip(colors).map(paint).collect()
}

/// A time span in its largest unit, or its largest two where one says too little: `45s`, `3m20s`, `50m`, `5h10m`, `3d`.
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
        let rows = [["TYPE", "AGE", "MESSAGE"], ["KubeletHealthy", "5s", "é"], ["É", "10m", ""]];
        let expected = ["TYPE             AGE   MESSAGE", "KubeletHealthy   5s    é", "É                10m"];
        assert_eq!(lines(&rows.map(|row| row.map(str::to_owned))), expected);
    }

    #[test]
    fn an_age_has_the_precision_that_matters() {
        let age_of = |secs| age(SignedDuration::from_secs(secs));
        let ages = [-5, 59, 60, 599, 600, 7199, 7200, 35_999, 36_000, 172_799, 172_800].map(age_of);
        assert_eq!(ages, ["0s", "59s", "1m0s", "9m59s", "10m", "119m", "2h0m", "9h59m", "10h", "47h", "2d"]);
    }
}
