//! Edits of files, as findings have them.

use crate::kubelet::location::Location;

/// A change of one file that remedies a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The line, or the characters of it, that change.
    pub at: Location,
    /// What becomes of them.
    pub change: Change,
}

/// What becomes of a line or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The located characters become this text.
    Text(String),
    /// The located line becomes these lines; without any it is deleted.
    Lines(Vec<String>),
    /// This line comes above the located one.
    Above(String),
    /// This line comes behind the last line of the file, which is made if it is not there.
    Append(String),
    /// The file is written without a byte order mark and with LF line ends.
    PlainEncoding,
}

/// Files below these are replaced by the next update of a package or gone with the next boot.
pub(crate) const NOT_THE_OPERATORS: [&str; 6] = ["/usr", "/lib", "/nix", "/run", "/proc", "/snap"];

/// The text with one edit.
pub(crate) fn edited(text: &str, edit: &Edit) -> Option<String> {
    if edit.change == Change::PlainEncoding {
        return Some(text.trim_start_matches('\u{feff}').replace("\r\n", "\n"));
    }
    if let Change::Append(line) = &edit.change {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Some(format!("{text}{end}{line}\n"));
    }
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let index = usize::try_from(edit.at.line).ok()?.checked_sub(1)?;
    let old = *lines.get(index)?;
    if matches!(edit.change, Change::Lines(_)) && !old.trim().is_empty() {
        // A line that a backslash joins to the next one is not a line of its own.
        let joined = lines.get(index.saturating_sub(1)..=index)?.iter().any(|line| line.trim_end().ends_with('\\'));
        if joined {
            return None;
        }
    }
    let new = match &edit.change {
        Change::Text(new) => {
            let first = usize::try_from(edit.at.column).ok()?.checked_sub(1)?;
            let width = usize::try_from(edit.at.width).ok()?;
            let mut bounds = old.char_indices().map(|(at, _)| at).chain([old.len()]).skip(first);
            let start = bounds.next()?;
            let end = if width == 0 { start } else { bounds.nth(width - 1)? };
            format!("{}{new}{}", &old[..start], &old[end..])
        }
        Change::Lines(new) => new.iter().flat_map(|line| [line, "\n"]).collect(),
        Change::Above(line) => format!("{line}\n{old}"),
        Change::Append(_) | Change::PlainEncoding => return None,
    };
    lines[index] = &new;
    Some(lines.concat())
}
