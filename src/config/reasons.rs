//! `[reasons.NAME]`: which reasons for `False` are only warnings, or off.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{
    error::ConfigError,
    error::Source,
    fragment::{Placed, place},
    keys,
};
use crate::{
    health::{
        Reason, Status, reasons,
        turned::{ToldAs, TurnedDown},
    },
    rules,
};

/// One reason's table.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReasonFragment {
    r#as: Option<Spanned<String>>,
}

/// The last word on each.
#[derive(Debug, Default)]
pub(super) struct MergedReasons(BTreeMap<String, Option<Placed<String>>>);

impl MergedReasons {
    pub(super) fn absorb(
        &mut self,
        written: BTreeMap<String, ReasonFragment>,
        source: &Source<'_>,
    ) {
        for (name, reason) in written {
            place(self.0.entry(name).or_default(), reason.r#as, source);
        }
    }

    pub(super) fn settle(self) -> Result<TurnedDown, ConfigError> {
        let mut turned = TurnedDown::new();
        for (name, placed) in self.0 {
            let Some(placed) = placed else { continue };
            let told_as = placed.check(&format!("reasons.{name}.as"), |word| told_as(&word))?;
            // What is no reason was refused where it was read.
            turned.extend(Reason::parse(&name).map(|reason| (reason, told_as)));
        }
        Ok(turned)
    }
}

fn told_as(word: &str) -> Result<ToldAs, String> {
    match word {
        "warning" => Ok(ToldAs::Warning),
        "off" => Ok(ToldAs::Off),
        _ => Err(format!("{word:?} is neither \"warning\" nor \"off\"")),
    }
}

/// Why there is nothing to say of `name`; `None`: it is a reason for `False`.
pub(super) fn refused(name: &str) -> Option<String> {
    if let Some(reason) = Reason::parse(name) {
        let status = reason.shown().as_str();
        return (reason.status() != Status::False).then(|| {
            format!("stands for {status}, and only a reason for False can be told as less")
        });
    }
    let bad = reasons().filter(|spec| spec.status == Status::False);
    let of_rules = rules::reasons().iter().map(String::as_str);
    let known: Vec<&str> = bad.map(|spec| spec.name).chain(of_rules).collect();
    let hint = match keys::nearest(name, &known) {
        Some(near) => format!("did you mean {near}?"),
        None => "docs/reference/conditions.md lists them".to_owned(),
    };
    Some(format!("not a reason of ours; {hint}"))
}
