//! The book of Events: what is still to be told, what was told lately, and how much may be told.
//!
//! Pure. The same again within six minutes, or within an hour if it is of a kind that repeats, is one more of a series, not
//! another object. Two buckets bound the requests: one that only changes of conditions may use, and one for all. Changes
//! of conditions are sent first. What the API cannot take is kept, up to a bound, and then counted.

mod bucket;
mod entry;

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;

use super::api::ApiError;
use crate::{clock::Now, health::news::Pace};
use bucket::Bucket;
use entry::Entry;

/// Notices that wait for the API.
const MAX_WAITING: usize = 16;
/// Notices that may become a series.
const MAX_RECENT: usize = 32;
/// An event about longer ago is of no use: the API server itself forgets them after an hour.
const STALE: Duration = Duration::from_hours(1);
/// What of the Node's name an Event's begins with: both have the API's bound of 253 characters.
const MAX_STEM: usize = 150;
/// The API's bound of a note.
const MAX_NOTE_BYTES: usize = 1024;

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is about a problem.
    pub warning: bool,
    /// Why, in `CamelCase`.
    pub reason: String,
    /// What we did about it, in `CamelCase`.
    pub action: &'static str,
    /// For people.
    pub note: String,
    /// Whom it is about besides the Node: two that differ in that are no series.
    pub about: String,
    /// Which share of the budget it may use, and how its series is counted.
    pub pace: Pace,
}

impl Notice {
    fn is_the_same(&self, other: &Self) -> bool {
        (self.warning, &self.reason, self.action, &self.about)
            == (other.warning, &other.reason, other.action, &other.about)
    }

    fn is_urgent(&self) -> bool {
        matches!(self.pace, Pace::Urgent | Pace::Once)
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTask {
    /// Its number: the answer to one that was given up counts for nothing.
    pub attempt: u64,
    /// The Event's name.
    pub name: String,
    /// The uid of the Node that it is about.
    pub uid: String,
    /// What it says.
    pub notice: Notice,
    /// When it happened first.
    pub first: Timestamp,
    /// How often so far, and when last.
    pub count: u32,
    /// When it happened last.
    pub last: Timestamp,
    /// Whether the Event is there already, so that only its series changes.
    pub exists: bool,
}

/// The book.
#[derive(Debug)]
pub struct EventBook {
    node: String,
    /// Requests that changes of conditions alone may cost, and those that anything may.
    reserved: Bucket,
    common: Bucket,
    uid: Option<String>,
    /// What is to be told, the oldest first.
    waiting: VecDeque<Entry>,
    /// What was told lately; the count of a series that repeats waits here until its update is due.
    recent: VecDeque<Entry>,
    in_flight: Option<u64>,
    attempts: u64,
    names: u32,
    error: Option<ApiError>,
    sent: u64,
    dropped: u64,
    /// Dropped since an Event said so.
    untold: u32,
}

impl EventBook {
    /// An empty book for `node`, with `per_hour` requests, half of them for changes of conditions alone; 0: nothing is told.
    pub fn new(node: &str, per_hour: u32) -> Self {
        Self {
            node: node.to_owned(),
            reserved: Bucket::new(per_hour.div_ceil(2)),
            common: Bucket::new(per_hour / 2),
            uid: None,
            waiting: VecDeque::new(),
            recent: VecDeque::new(),
            in_flight: None,
            attempts: 0,
            names: 0,
            error: None,
            sent: 0,
            dropped: 0,
            untold: 0,
        }
    }

    /// Another Node has our name, or none: what was to be told is not about it.
    pub fn node(&mut self, uid: Option<&str>) {
        if self.uid.as_deref() != uid {
            if self.uid.is_some() && uid.is_some() {
                self.waiting.clear();
                self.recent.clear();
            }
            self.uid = uid.map(str::to_owned);
        }
    }

    /// Takes in something to tell.
    pub fn record(&mut self, mut notice: Notice, now: Now) {
        if self.reserved.is_none() {
            return;
        }
        let end = notice.note.floor_char_boundary(MAX_NOTE_BYTES);
        notice.note.truncate(end);
        if let Some(entry) = self.waiting.iter_mut().find(|e| e.again(&notice, now)) {
            entry.count += 1;
            entry.last = now;
            return;
        }
        let entry = match self.recent.iter().position(|e| e.again(&notice, now)) {
            Some(at) => {
                let entry = &mut self.recent[at];
                entry.count += 1;
                entry.last = now;
                if entry.update_at() > now.uptime {
                    return; // `next` looks at it again
                }
                self.recent.remove(at)
            }
            None => Some(self.entry(notice, now)),
        };
        self.waiting.extend(entry);
        self.bound();
    }

    /// Lets go of what is too much: the oldest that is no change of a condition, if there is one.
    fn bound(&mut self) {
        while self.waiting.len() > MAX_WAITING {
            let least = self.waiting.iter().position(|e| !e.notice.is_urgent());
            self.waiting.remove(least.unwrap_or(0));
            self.lose();
        }
    }

    fn entry(&mut self, notice: Notice, now: Now) -> Entry {
        self.names += 1;
        // A name of a life of ours is never used again: the wall clock makes it, the number keeps two of a moment apart.
        let (micros, number) = (now.wall.as_microsecond(), self.names);
        let own = match (notice.pace, &self.uid) {
            (Pace::Once, Some(uid)) => {
                let reason = notice.reason.to_lowercase();
                format!("{uid}.{reason}.{}", notice.about)
            }
            _ => format!("{micros:x}.{number:x}"),
        };
        let stem: String = self.node.chars().take(MAX_STEM).collect();
        Entry {
            name: format!("{stem}.{own}"),
            notice,
            first: now,
            count: 1,
            last: now,
            told: 0,
            told_at: Duration::ZERO,
            updates: 0,
        }
    }

    fn lose(&mut self) {
        self.dropped += 1;
        self.untold += 1;
    }

    /// The request that is due now, if any; it is in flight until [`EventBook::done`]. `now` has the cluster's time
    /// ([`super::time::ClusterTime::of`]).
    pub fn next(&mut self, now: Now) -> Option<EventTask> {
        if self.in_flight.is_some() {
            return None;
        }
        self.let_go_of_stale(now);
        self.ripen(now);
        let uid = self.uid.clone()?;
        let urgent = |e: &Entry| e.notice.is_urgent();
        let at = match self.waiting.iter().position(urgent) {
            Some(at) if self.reserved.take(now) || self.common.take(now) => at,
            _ => {
                let at = self.waiting.iter().position(|e| !urgent(e))?;
                self.common.take(now).then_some(at)?
            }
        };
        let entry = &self.waiting[at];
        let mut notice = entry.notice.clone();
        if self.untold > 0 && entry.told == 0 {
            let said = format!(" ({} earlier events could not be told)", self.untold);
            let end = (notice.note).floor_char_boundary(MAX_NOTE_BYTES - said.len());
            notice.note.truncate(end);
            notice.note += &said;
        }
        let (first, last) = entry.times(now);
        let task = EventTask {
            attempt: self.attempts + 1,
            name: entry.name.clone(),
            uid,
            notice,
            first,
            count: entry.count,
            last,
            exists: entry.told > 0,
        };
        self.attempts = task.attempt;
        self.in_flight = Some(task.attempt);
        Some(task)
    }

    fn let_go_of_stale(&mut self, now: Now) {
        let before = self.waiting.len();
        self.waiting
            .retain(|e| now.uptime.saturating_sub(e.last.uptime) <= STALE);
        for _ in self.waiting.len()..before {
            self.lose();
        }
    }

    /// The counts whose update is due are sent after what waits already.
    fn ripen(&mut self, now: Now) {
        while self.waiting.len() < MAX_WAITING {
            let due = |e: &Entry| e.count > e.told && e.update_at() <= now.uptime;
            let Some(at) = self.recent.iter().position(due) else {
                break;
            };
            self.waiting.extend(self.recent.remove(at));
        }
    }

    /// When to ask again though nothing happens (uptime).
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.in_flight.is_some() || self.uid.is_none() {
            return None;
        }
        let common = self.common.free_at();
        let reserved = self.reserved.free_at();
        let waiting = self.waiting.iter().filter_map(|e| {
            let urgent = reserved.filter(|_| e.notice.is_urgent());
            common.into_iter().chain(urgent).min()
        });
        let counts = self.recent.iter().filter(|e| e.count > e.told);
        let counts = counts.filter_map(|e| Some(common?.max(e.update_at())));
        waiting.chain(counts).min()
    }

    /// Whatever was in flight will not come back: its connection was dropped.
    pub fn forget_in_flight(&mut self) {
        self.in_flight = None;
    }

    /// Takes in how a request ended: what the API server has to say to it, or nothing, if it was given up.
    pub fn done(
        &mut self,
        task: &EventTask,
        result: Result<(), ApiError>,
        now: Now,
    ) -> Option<Result<(), ApiError>> {
        if self.in_flight != Some(task.attempt) {
            return None;
        }
        self.in_flight = None;
        // It may have been pushed out, or its Node may be gone.
        let at = self.waiting.iter().position(|e| e.name == task.name);
        let error = match result {
            // A conflict: it had landed before, and its answer was lost.
            Ok(()) | Err(ApiError::Conflict(_)) => {
                self.told(task, at, now);
                return Some(Ok(()));
            }
            Err(error) => error,
        };
        match &error {
            // The Event is gone, with the hour or by somebody's hand: the series starts anew.
            ApiError::NotFound if task.exists => {
                if let Some(entry) = at.and_then(|at| self.waiting.remove(at)) {
                    let anew = self.entry(entry.notice, entry.last);
                    self.waiting.push_front(anew);
                }
                return Some(Ok(()));
            }
            // It will not be taken another time either.
            ApiError::Refused { .. } | ApiError::NotFound
                if at.and_then(|at| self.waiting.remove(at)).is_some() =>
            {
                self.lose();
            }
            _ => {}
        }
        self.error = Some(error.clone());
        Some(Err(match error {
            // There is no such namespace, or no such API; the Node is another matter.
            ApiError::NotFound => ApiError::Refused {
                code: 404,
                message: "no Events can be made in the namespace default".to_owned(),
            },
            error => error,
        }))
    }

    fn told(&mut self, task: &EventTask, at: Option<usize>, now: Now) {
        self.sent += 1;
        if !task.exists {
            self.untold = 0; // it said so
        }
        self.error = None;
        let Some(mut entry) = at.and_then(|at| self.waiting.remove(at)) else {
            return;
        };
        entry.told = task.count;
        entry.told_at = now.uptime;
        entry.updates += u32::from(task.exists);
        if entry.count > entry.told && entry.update_at() <= now.uptime {
            self.waiting.push_back(entry);
            return;
        }
        self.recent.push_back(entry);
        while self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
    }

    /// Requests that the API server has taken.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Notices that were never told.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Notices that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The failure that no success has followed.
    pub fn error(&self) -> Option<&ApiError> {
        self.error.as_ref()
    }
}

#[cfg(test)]
mod tests;
