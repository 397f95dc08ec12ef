//! The book of Events: what is still to be told, what was told lately, and how much may be told.
//!
//! Pure. The same again within six minutes is one more of a series, not another object; a bucket bounds the requests;
//! what the API cannot take is kept, up to a bound, and then counted.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;

use super::api::ApiError;
use crate::clock::Now;

/// Notices that wait for the API.
const MAX_WAITING: usize = 16;
/// Notices that may become a series.
const MAX_RECENT: usize = 16;
/// A series goes on within this time, as client-go has it.
const SERIES: Duration = Duration::from_mins(6);
/// An event about longer ago is of no use: the API server itself forgets them after an hour.
const STALE: Duration = Duration::from_hours(1);
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
}

impl Notice {
    fn is_the_same(&self, other: &Self) -> bool {
        (self.warning, &self.reason, self.action, &self.about)
            == (other.warning, &other.reason, other.action, &other.about)
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

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    notice: Notice,
    first: Timestamp,
    count: u32,
    last: Now,
    /// What the API server has: 0 before the Event is made.
    told: u32,
}

/// The book.
#[derive(Debug)]
pub struct EventBook {
    node: String,
    per_hour: u32,
    /// Requests that may be sent now, at most half an hour's worth, and when that was counted.
    tokens: f64,
    counted_at: Duration,
    uid: Option<String>,
    /// What is to be told, the oldest first.
    waiting: VecDeque<Entry>,
    /// What was told lately.
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
    /// An empty book for `node`, with `per_hour` requests; 0: nothing is told.
    pub fn new(node: &str, per_hour: u32) -> Self {
        let mut book = Self {
            node: node.to_owned(),
            per_hour,
            tokens: 0.0,
            counted_at: Duration::ZERO,
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
        };
        book.tokens = book.capacity();
        book
    }

    /// Half of an hour's requests at once, the other half over the hour: so that no hour has more than all.
    fn capacity(&self) -> f64 {
        (f64::from(self.per_hour) / 2.0).max(1.0)
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
        if self.per_hour == 0 {
            return;
        }
        let end = notice.note.floor_char_boundary(MAX_NOTE_BYTES);
        notice.note.truncate(end);
        if let Some(entry) = self.waiting.iter_mut().find(|e| e.again(&notice, now)) {
            entry.count += 1;
            entry.last = now;
            return;
        }
        let recent = self.recent.iter().position(|e| e.again(&notice, now));
        let entry = match recent.and_then(|at| self.recent.remove(at)) {
            Some(entry) => Entry {
                count: entry.count + 1,
                last: now,
                ..entry
            },
            None => self.entry(notice, now),
        };
        self.waiting.push_back(entry);
        while self.waiting.len() > MAX_WAITING {
            self.waiting.pop_front();
            self.lose();
        }
    }

    fn entry(&mut self, notice: Notice, now: Now) -> Entry {
        self.names += 1;
        // A name of a life of ours is never used again: the wall clock makes it, the number keeps two of a moment apart.
        let stem: String = self.node.chars().take(200).collect();
        let (micros, number) = (now.wall.as_microsecond(), self.names);
        Entry {
            name: format!("{stem}.{micros:x}.{number:x}"),
            notice,
            first: now.wall,
            count: 1,
            last: now,
            told: 0,
        }
    }

    fn lose(&mut self) {
        self.dropped += 1;
        self.untold += 1;
    }

    /// The request that is due now, if any; it is in flight until [`EventBook::done`].
    pub fn next(&mut self, now: Now) -> Option<EventTask> {
        let stale = |e: &Entry| now.uptime.saturating_sub(e.last.uptime) > STALE;
        while self.in_flight.is_none() && self.waiting.front().is_some_and(stale) {
            self.waiting.pop_front();
            self.lose();
        }
        if self.next_deadline()? > now.uptime {
            return None;
        }
        self.refill(now);
        if self.tokens < 1.0 {
            return None;
        }
        let entry = self.waiting.front()?;
        let mut notice = entry.notice.clone();
        if self.untold > 0 && entry.told == 0 {
            let said = format!(" ({} earlier events could not be told)", self.untold);
            let end = (notice.note).floor_char_boundary(MAX_NOTE_BYTES - said.len());
            notice.note.truncate(end);
            notice.note += &said;
        }
        let task = EventTask {
            attempt: self.attempts + 1,
            name: entry.name.clone(),
            uid: self.uid.clone()?,
            notice,
            first: entry.first,
            count: entry.count,
            last: entry.last.wall,
            exists: entry.told > 0,
        };
        self.tokens -= 1.0;
        self.attempts = task.attempt;
        self.in_flight = Some(task.attempt);
        Some(task)
    }

    /// When to ask again though nothing happens (uptime).
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.in_flight.is_some() || self.waiting.is_empty() || self.uid.is_none() {
            return None;
        }
        let missing = (1.0 - self.tokens).max(0.0);
        Some(self.counted_at + Duration::from_secs_f64(missing / self.per_second()))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.per_hour.max(1)) / 2.0 / 3600.0
    }

    fn refill(&mut self, now: Now) {
        let passed = now.uptime.saturating_sub(self.counted_at).as_secs_f64();
        // A hair more than it is: a deadline that was met must not miss its token by rounding.
        self.tokens = (self.tokens + passed * self.per_second() + 1e-6).min(self.capacity());
        self.counted_at = now.uptime;
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
    ) -> Option<Result<(), ApiError>> {
        if self.in_flight != Some(task.attempt) {
            return None;
        }
        self.in_flight = None;
        // It may have been pushed out, or its Node may be gone.
        let is_it = self.waiting.front().is_some_and(|e| e.name == task.name);
        let error = match result {
            // A conflict: it had landed before, and its answer was lost.
            Ok(()) | Err(ApiError::Conflict(_)) => {
                self.told(task, is_it);
                return Some(Ok(()));
            }
            Err(error) => error,
        };
        match &error {
            // The Event is gone, with the hour or by somebody's hand: the series starts anew.
            ApiError::NotFound if task.exists => {
                if let Some(entry) = self.waiting.pop_front_if(|_| is_it) {
                    let anew = self.entry(entry.notice, entry.last);
                    self.waiting.push_front(anew);
                }
                return Some(Ok(()));
            }
            // It will not be taken another time either.
            ApiError::Refused { .. } | ApiError::NotFound
                if self.waiting.pop_front_if(|_| is_it).is_some() =>
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

    fn told(&mut self, task: &EventTask, is_it: bool) {
        self.sent += 1;
        if !task.exists {
            self.untold = 0; // it said so
        }
        self.error = None;
        let Some(mut entry) = self.waiting.pop_front_if(|_| is_it) else {
            return;
        };
        entry.told = task.count;
        if entry.count > entry.told {
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

impl Entry {
    fn again(&self, notice: &Notice, now: Now) -> bool {
        self.notice.is_the_same(notice) && now.uptime.saturating_sub(self.last.uptime) <= SERIES
    }
}

#[cfg(test)]
mod tests;
