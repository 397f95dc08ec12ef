//! Which of our types are somebody else's: those are refused, not fought for.
//!
//! Pure. Another field manager that owns a type which we do not own was there first: the type is refused before it is
//! ever written. A type that we own and somebody overwrites is put right, and given up to a manager that insists.

use std::time::Duration;

use super::api::Ownership;
use crate::{clock::Now, desired::PublishedType};

/// After so many repairs within [`MEMORY`] against the same manager it is given way.
const MAX_REPAIRS: u32 = 3;
/// How long an overwriting counts, and how long a type that was given up stays so at least.
const MEMORY: Duration = Duration::from_hours(1);

/// A type that is left out of our applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The type.
    pub r#type: PublishedType,
    /// Whose it is.
    pub manager: String,
    /// Whether we had it, and gave it up.
    pub contested: bool,
    /// Until when (uptime) it stays refused, whoever owns it.
    until: Duration,
}

/// Something to say, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerNews {
    /// This type is refused from now on.
    Refused(Refusal),
    /// This type is nobody else's any more: it is published from now on.
    Taken(PublishedType),
}

#[derive(Debug)]
struct Contest {
    r#type: PublishedType,
    manager: String,
    repairs: u32,
    since: Duration,
}

/// What is known of others' claims.
#[derive(Debug, Default)]
pub struct Owners {
    /// Who owned what when the Node was seen last.
    last: Vec<Ownership>,
    /// The types that we have written in this life.
    written: Vec<PublishedType>,
    refused: Vec<Refusal>,
    contests: Vec<Contest>,
    news: Vec<OwnerNews>,
}

impl Owners {
    /// The types that are left out now.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// Whether this type is left out now.
    pub fn refuses(&self, r#type: PublishedType) -> bool {
        self.refused.iter().any(|refusal| refusal.r#type == r#type)
    }

    /// What has changed since this was asked last.
    pub fn take_news(&mut self) -> Vec<OwnerNews> {
        std::mem::take(&mut self.news)
    }

    /// Another Node has our name now: none of this was about it.
    pub fn forget(&mut self) {
        *self = Self {
            news: std::mem::take(&mut self.news),
            ..Self::default()
        };
    }

    /// We wrote these types.
    pub fn wrote(&mut self, types: Vec<PublishedType>) {
        self.written = types;
    }

    /// Takes in who owns what. `wished` are the types that we would publish.
    pub fn seen(&mut self, owners: &[Ownership], wished: &[PublishedType], now: Now) {
        self.last = owners.to_vec();
        let owner = |t| owners.iter().find(|owner| owner.r#type == t);
        let is_over = |refusal: &Refusal| {
            now.uptime >= refusal.until && owner(refusal.r#type).is_none_or(|o| o.foreign.is_none())
        };
        let over = self.refused.extract_if(.., |refusal| is_over(refusal));
        self.news.extend(over.map(|r| OwnerNews::Taken(r.r#type)));
        self.wished(wished);
    }

    /// Takes in which types we would publish from now on: those that are somebody else's are refused.
    pub fn wished(&mut self, wished: &[PublishedType]) {
        self.refused
            .retain(|refusal| wished.contains(&refusal.r#type));
        for owner in std::mem::take(&mut self.last) {
            let was_here_first = !owner.ours && !self.written.contains(&owner.r#type);
            let is_new = wished.contains(&owner.r#type) && !self.refuses(owner.r#type);
            if let Some(manager) = &owner.foreign
                && was_here_first
                && is_new
            {
                self.refuse(owner.r#type, manager, false, Duration::ZERO);
            }
            self.last.push(owner);
        }
    }

    /// This type of ours was overwritten: `true` if it is to be put right.
    pub fn overwritten(&mut self, r#type: PublishedType, now: Now) -> bool {
        let owner = self.last.iter().find(|owner| owner.r#type == r#type);
        // Without another's name it was removed, or it is an old request of ours: nobody to give way to.
        let Some(manager) = owner.and_then(|owner| owner.foreign.clone()) else {
            return true;
        };
        self.contests
            .retain(|contest| now.uptime.saturating_sub(contest.since) < MEMORY);
        let known = (self.contests.iter_mut())
            .find(|contest| contest.r#type == r#type && contest.manager == manager);
        let Some(contest) = known else {
            self.contests.push(Contest {
                r#type,
                manager,
                repairs: 1,
                since: now.uptime,
            });
            // A type has one owner at a time; this bounds a crowd that takes turns.
            self.contests
                .drain(..self.contests.len().saturating_sub(16));
            return true;
        };
        contest.repairs += 1;
        if contest.repairs <= MAX_REPAIRS {
            return true;
        }
        self.contests.retain(|contest| contest.r#type != r#type);
        self.refuse(r#type, &manager, true, now.uptime + MEMORY);
        false
    }

    fn refuse(&mut self, r#type: PublishedType, manager: &str, contested: bool, until: Duration) {
        let refusal = Refusal {
            r#type,
            manager: manager.to_owned(),
            contested,
            until,
        };
        self.refused.push(refusal.clone());
        self.news.push(OwnerNews::Refused(refusal));
    }
}
