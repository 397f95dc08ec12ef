//! What to do about a finding: its steps, of which come the sentence, its places, the edits and the command afterwards.

use crate::kubelet::location::Location;
use crate::kubelet::snapshot::Snapshot;

/// A step of a remedy. `what` says it without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The located characters become this text; without a column, the located line becomes these lines.
    Replace { at: Location, what: String, new: String },
    /// The located characters go, or without a column the line.
    Delete { at: Location, what: String },
    /// These lines come after the last one of the file, which is made if it is not there.
    Append { to: Location, lines: String },
    /// What only a person can do: at a place of a file that changes by it, or elsewhere.
    Say { at: Option<Location>, what: String },
}

/// Lines as a sentence shows them.
fn shown(lines: &str) -> String {
    let lines: Vec<String> = lines.lines().filter(|line| !line.is_empty()).map(|line| format!("`{line}`")).collect();
    lines.join(" and ")
}

impl Step {
    pub(crate) fn say(what: impl Into<String>) -> Self {
        Self::Say { at: None, what: what.into() }
    }

    pub(crate) fn say_at(at: &Location, what: impl Into<String>) -> Self {
        Self::Say { at: Some(at.clone()), what: what.into() }
    }

    /// Writes `new` after `kept`, which stays: an edit where the characters are known, else said of the place.
    pub(crate) fn write(exact: Option<Location>, place: &Location, kept: &str, new: impl Into<String>) -> Self {
        let new = new.into();
        Self::replace(exact, place, format!("write `{kept}{new}`"), new)
    }

    /// Writes `new` in place of `old`.
    pub(crate) fn rename(exact: Option<Location>, place: &Location, old: &str, new: impl Into<String>) -> Self {
        let new = new.into();
        Self::replace(exact, place, format!("write `{new}` in place of `{old}`"), new)
    }

    pub(crate) fn replace(exact: Option<Location>, place: &Location, what: String, new: String) -> Self {
        match exact.filter(|at| at.column > 0) {
            Some(at) => Self::Replace { at, what, new },
            None => Self::say_at(place, what),
        }
    }

    /// Writes lines in place of the one at this place.
    pub(crate) fn lines(at: &Location, new: impl Into<String>) -> Self {
        let new = new.into();
        Self::Replace { at: at.at_line(at.line), what: format!("write {}", shown(&new)), new }
    }

    pub(crate) fn delete(exact: Option<Location>, place: &Location, what: &str) -> Self {
        let what = format!("delete `{what}`");
        match exact {
            Some(at) => Self::Delete { at, what },
            None => Self::say_at(place, what),
        }
    }

    pub(crate) fn delete_line(at: &Location) -> Self {
        Self::Delete { at: at.at_line(at.line), what: "delete the line".to_owned() }
    }

    pub(crate) fn at(&self) -> Option<&Location> {
        match self {
            Self::Replace { at, .. } | Self::Delete { at, .. } | Self::Append { to: at, .. } => Some(at),
            Self::Say { at, .. } => at.as_ref(),
        }
    }

    pub(crate) fn writes(&self, text: &str) -> bool {
        matches!(self, Self::Replace { new, .. } | Self::Append { lines: new, .. } if new.contains(text))
    }

    fn is_edit(&self) -> bool {
        !matches!(self, Self::Say { .. })
    }

    fn phrase(&self) -> String {
        match self {
            Self::Replace { at, what, .. } | Self::Delete { at, what } | Self::Say { at: Some(at), what } => {
                format!("{what} at {at}")
            }
            Self::Append { to, lines } => {
                let s = if lines.trim().contains('\n') { "s" } else { "" };
                format!("add the line{s} {} to {}", shown(lines), to.file)
            }
            Self::Say { at: None, what } => what.clone(),
        }
    }
}

/// Steps that remedy a finding, all of them together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Remedy {
    pub(crate) steps: Vec<Step>,
    /// Whether a person has to decide first.
    pub(crate) by_hand: bool,
}

impl From<Step> for Remedy {
    fn from(step: Step) -> Self {
        Self { steps: vec![step], by_hand: false }
    }
}

impl From<Vec<Step>> for Remedy {
    fn from(steps: Vec<Step>) -> Self {
        Self { steps, by_hand: false }
    }
}

impl Remedy {
    /// The steps as edits, in this order; none if one of them takes a person.
    pub(crate) fn edits(&self) -> impl Iterator<Item = &Step> {
        let is_sure = !self.by_hand && !self.steps.iter().any(|step| !step.is_edit() && step.at().is_some());
        self.steps.iter().filter(move |step| is_sure && step.is_edit())
    }

    /// The steps in a sentence, with the command afterwards. What begins with a capital is a sentence of its own.
    pub(crate) fn sentence(&self, snapshot: &Snapshot) -> Option<String> {
        let is_apart =
            |step: &&Step| matches!(step, Step::Say { at: None, what } if what.starts_with(char::is_uppercase));
        let (apart, steps): (Vec<&Step>, Vec<&Step>) = self.steps.iter().partition(is_apart);
        let mut sentence = String::new();
        let mut last = None;
        for step in steps {
            let phrase = step.phrase();
            if last.as_ref().is_some_and(|(_, before)| *before == phrase) {
                continue;
            }
            sentence.push_str(match &last {
                None => "",
                Some((true, _)) if step.is_edit() => " and ",
                Some(_) => ", ",
            });
            sentence.push_str(&phrase);
            last = Some((step.is_edit(), phrase));
        }
        if let Some(command) = restart(snapshot, self.steps.iter().filter_map(Step::at)) {
            sentence = format!("{sentence}, then {command}");
        }
        for step in apart {
            sentence.push_str(if sentence.is_empty() { "" } else { ". " });
            sentence.push_str(&step.phrase());
        }
        (!sentence.is_empty()).then_some(sentence)
    }
}

/// The command after changes at these places: systemd itself reads unit files and drop-ins.
fn restart<'a>(snapshot: &Snapshot, places: impl Iterator<Item = &'a Location>) -> Option<String> {
    let unit = &snapshot.unit;
    let mut is_changed = false;
    let mut is_of_systemd = false;
    let mut in_env_file = false;
    for at in places {
        let mut units = unit.fragment.iter().chain(&unit.dropins);
        is_changed = true;
        is_of_systemd |= at.file.starts_with("/etc/systemd/") || units.any(|path| path.to_str() == Some(&*at.file));
        in_env_file |= unit.env_files.iter().any(|file| file.path.to_str() == Some(&*at.file));
    }
    let name = unit_name(snapshot);
    is_changed.then(|| match (is_of_systemd, in_env_file) {
        (true, _) => reload(snapshot),
        (false, true) => format!("`systemctl restart {name}` (an environment file needs no daemon-reload)"),
        (false, false) => format!("`systemctl restart {name}`"),
    })
}

/// The unit's name as one types it.
pub(crate) fn unit_name(snapshot: &Snapshot) -> &str {
    let name = &snapshot.unit.name;
    name.strip_suffix(".service").unwrap_or(name)
}

/// The command after an edit of a unit or a drop-in.
pub(crate) fn reload(snapshot: &Snapshot) -> String {
    format!("`systemctl daemon-reload && systemctl restart {}`", unit_name(snapshot))
}

/// Files below these are replaced by the next update of a package or gone with the next boot.
pub(crate) const NOT_THE_OPERATORS: [&str; 6] = ["/usr", "/lib", "/nix", "/run", "/proc", "/snap"];

/// The text after one step; `None` if it does not fit.
pub(crate) fn edited(text: &str, step: &Step) -> Option<String> {
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let written = |new: &str| new.lines().flat_map(|line| [line, line_end]).collect::<String>();
    let (at, new) = match step {
        Step::Say { .. } => return None,
        Step::Append { lines, .. } => {
            let open = if text.is_empty() || text.ends_with('\n') { "" } else { line_end };
            return Some(format!("{text}{open}{}", written(lines)));
        }
        Step::Replace { at, new, .. } => (at, new.as_str()),
        Step::Delete { at, .. } => (at, ""),
    };
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let index = usize::try_from(at.line).ok()?.checked_sub(1)?;
    let old = *lines.get(index)?;
    let new = if let Some(first) = usize::try_from(at.column).ok()?.checked_sub(1) {
        let width = usize::try_from(at.width).ok()?;
        let mut bounds = old.char_indices().map(|(at, _)| at).chain([old.len()]).skip(first);
        let start = bounds.next()?;
        let end = if width == 0 { start } else { bounds.nth(width - 1)? };
        format!("{}{}{}", &old[..start], new.replace('\n', line_end), &old[end..])
    } else {
        // A line that a backslash joins to the next one is not a line of its own.
        let is_joined = |line: &&str| line.trim_end().ends_with('\\');
        if !old.trim().is_empty() && lines.get(index.saturating_sub(1)..=index)?.iter().any(is_joined) {
            return None;
        }
        written(new)
    };
    lines[index] = &new;
    Some(lines.concat())
}
