//! Who takes the memory: whose grows fastest while the host's goes down. Pure; `host::memory_groups` reads.
//!
//! What a control group could drop is not counted: a pod that reads a large file is not to blame. And it is growth that
//! counts, not size: the largest pod may have been so for weeks. The task that the kernel names as having invoked the
//! killer is of no account: whoever asks next is not whoever took.

use std::time::Duration;

/// Pods that are looked at.
pub const MAX_PODS: usize = 512;
/// Other control groups that are looked at.
pub const MAX_GROUPS: usize = 128;
/// So many of each kind are looked at closer, those that grow fastest.
pub const TOP: usize = 5;
/// Looks that are kept.
const LOOKS: usize = 16;
/// Over how long growth is measured.
const SPAN: Duration = Duration::from_secs(10);
/// Looks closer together than this make no rate.
const LEAST_SPAN: Duration = Duration::from_millis(400);
/// Who has grown by less than this is not named.
const LEAST_KIB: u64 = 1024;
/// Looks further apart than this have nothing to do with each other.
const STALE: Duration = Duration::from_secs(20);
/// So much of what the host loses must be the pods', or it is asked who else grows.
const PODS_EXPLAIN_PERCENT: u64 = 50;

/// Who takes most of what the host loses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grower {
    /// Whom.
    pub who: Who,
    /// How fast it grows.
    pub bytes_per_sec: u64,
    /// How much that is of what the host's available memory loses; `None` while that loses nothing.
    pub share_percent: Option<u8>,
}

/// Whose memory it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// A pod: `namespace/name`, or its uid where the name is not known.
    Pod(String),
    /// Another control group, by its path: `system.slice/sshd.service`.
    Group(String),
    /// The kernel itself: what it holds and cannot give back.
    Kernel,
}

/// What is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A pod, by its uid.
    Pod(String),
    /// Another control group, by its path.
    Group(String),
}

impl Subject {
    fn is_pod(&self) -> bool {
        matches!(self, Self::Pod(_))
    }
}

/// What one look has seen of the host.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    at: Duration,
    available_kib: Option<u32>,
    kernel_kib: Option<u32>,
}

/// Numbers of the last looks, in KiB, each in the place of its look.
type Ring = [Option<u32>; LOOKS];

#[derive(Debug)]
struct Row {
    subject: Subject,
    /// All that it uses.
    used: Ring,
    /// What of that it cannot drop, of those that were looked at closer.
    held: Ring,
}

/// How fast something grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rate {
    kib_per_sec: u64,
    used_kib: u32,
}

/// The last looks.
#[derive(Debug, Default)]
pub struct Growth {
    rows: Vec<Row>,
    looks: [Look; LOOKS],
    /// How many looks there are, at most [`LOOKS`].
    made: usize,
    /// The place of the last.
    last: usize,
}

impl Growth {
    /// Begins a look: how the host stands.
    pub fn begin(&mut self, at: Duration, available: u64, kernel: Option<u64>) {
        if self.made > 0 && at.saturating_sub(self.looks[self.last].at) > STALE {
            self.forget();
        }
        self.last = (self.last + 1) % LOOKS;
        self.made = (self.made + 1).min(LOOKS);
        self.looks[self.last] = Look {
            at,
            available_kib: Some(kib(available)),
            kernel_kib: kernel.map(kib),
        };
        for row in &mut self.rows {
            (row.used[self.last], row.held[self.last]) = (None, None);
        }
    }

    /// Forgets what was seen; who is followed stays.
    pub fn forget(&mut self) {
        self.made = 0;
        for row in &mut self.rows {
            (row.used, row.held) = ([None; LOOKS], [None; LOOKS]);
        }
    }

    /// How many more of a kind can be followed.
    pub fn room(&self, is_pod: bool) -> usize {
        let of_kind = self
            .rows
            .iter()
            .filter(|row| row.subject.is_pod() == is_pod);
        let max = if is_pod { MAX_PODS } else { MAX_GROUPS };
        max.saturating_sub(of_kind.count())
    }

    /// Follows one more, which gets the next number; for whom there is [`Growth::room`].
    pub fn add(&mut self, subject: Subject) {
        self.rows.push(Row {
            subject,
            used: [None; LOOKS],
            held: [None; LOOKS],
        });
    }

    /// That one is no more; the last gets its number.
    pub fn remove(&mut self, number: usize) {
        if number < self.rows.len() {
            self.rows.swap_remove(number);
        }
    }

    /// So much that one uses.
    pub fn used(&mut self, number: usize, bytes: u64) {
        if let Some(row) = self.rows.get_mut(number) {
            row.used[self.last] = Some(kib(bytes));
        }
    }

    /// So much that one holds.
    pub fn held(&mut self, number: usize, bytes: u64) {
        if let Some(row) = self.rows.get_mut(number) {
            row.held[self.last] = Some(kib(bytes));
        }
    }

    /// Who is to be looked at closer: of pods and of other groups those whose use grows fastest, and if none does, the
    /// largest.
    pub fn suspects(&self) -> [Option<usize>; 2 * TOP] {
        let mut all = [None; 2 * TOP];
        let (pods, groups) = all.split_at_mut(TOP);
        self.choose(pods, true);
        self.choose(groups, false);
        all
    }

    fn choose(&self, chosen: &mut [Option<usize>], is_pod: bool) {
        let mut rates = [None; TOP];
        for (number, row) in self.rows.iter().enumerate() {
            if row.subject.is_pod() != is_pod || row.used[self.last].is_none() {
                continue;
            }
            let rate = Some(self.rate(&row.used, row));
            let Some(place) = rates.iter().position(|other| rate > *other) else {
                continue;
            };
            rates[place..].rotate_right(1);
            chosen[place..].rotate_right(1);
            (rates[place], chosen[place]) = (rate, Some(number));
        }
    }

    /// Who takes most of what the host loses; the pods' names are told by `name_of`.
    pub fn grower(&self, name_of: impl Fn(&str) -> Option<String>) -> Option<Grower> {
        let rates = |is_pod: bool| {
            let rows = self
                .rows
                .iter()
                .filter(move |row| row.subject.is_pod() == is_pod);
            rows.filter_map(|row| Some((self.rate_of_held(row)?, Some(&row.subject))))
        };
        let best = |is_pod| rates(is_pod).max_by_key(|(rate, _)| *rate);
        let kernel = self.kernel_rate().map(|rate| (rate, None));
        let loses = self.loss_rate();
        let pods: u64 = rates(true).map(|(rate, _)| rate.kib_per_sec).sum();
        let explains = loses.is_none_or(|loss| pods * 100 >= loss * PODS_EXPLAIN_PERCENT);
        let by_pods = best(true).filter(|_| explains);
        let (rate, subject) = by_pods.or_else(|| {
            let all = [best(true), best(false), kernel];
            all.into_iter()
                .flatten()
                .max_by_key(|(rate, _)| rate.kib_per_sec)
        })?;
        let share = loses.map(|loss| (rate.kib_per_sec * 100 / loss.max(1)).min(100));
        Some(Grower {
            who: match subject {
                None => Who::Kernel,
                Some(Subject::Group(path)) => Who::Group(path.clone()),
                Some(Subject::Pod(uid)) => Who::Pod(name_of(uid).unwrap_or_else(|| uid.clone())),
            },
            bytes_per_sec: rate.kib_per_sec * 1024,
            share_percent: share.and_then(|share| u8::try_from(share).ok()),
        })
    }

    /// Of one that is worth a word.
    fn rate_of_held(&self, row: &Row) -> Option<Rate> {
        let (from, to) = self.ends(|place| row.held[place])?;
        let (before, now) = (row.held[from]?, row.held[to]?);
        (u64::from(now.saturating_sub(before)) >= LEAST_KIB).then_some(())?;
        Some(self.rate(&row.held, row))
    }

    fn rate(&self, ring: &Ring, row: &Row) -> Rate {
        let used_kib = row.used[self.last].unwrap_or(0);
        let kib_per_sec = self.per_sec(|place| ring[place]).unwrap_or(0);
        Rate {
            kib_per_sec: u64::try_from(kib_per_sec).unwrap_or(0),
            used_kib,
        }
    }

    fn kernel_rate(&self) -> Option<Rate> {
        let of = |place: usize| self.looks[place].kernel_kib;
        let (from, to) = self.ends(of)?;
        let grown = u64::from(of(to)?.saturating_sub(of(from)?));
        let kib_per_sec = u64::try_from(self.per_sec(of)?).ok()?;
        (grown >= LEAST_KIB).then_some(Rate {
            kib_per_sec,
            used_kib: of(to)?,
        })
    }

    /// How fast the host's available memory goes down, if it does.
    fn loss_rate(&self) -> Option<u64> {
        let change = self.per_sec(|place| self.looks[place].available_kib)?;
        u64::try_from(-change).ok().filter(|loss| *loss > 0)
    }

    /// By how much a second something has changed since the first look that counts.
    fn per_sec(&self, of: impl Fn(usize) -> Option<u32>) -> Option<i64> {
        let (from, to) = self.ends(&of)?;
        let change = i64::from(of(to)?) - i64::from(of(from)?);
        let took = self.looks[to].at.saturating_sub(self.looks[from].at);
        let millis = i64::try_from(took.as_millis()).ok()?;
        Some(change.saturating_mul(1000) / millis.max(1))
    }

    /// The first look within the span that knows it, and the last.
    fn ends(&self, of: impl Fn(usize) -> Option<u32>) -> Option<(usize, usize)> {
        of(self.last)?;
        let now = self.looks[self.last].at;
        let places = (1..self.made).map(|back| (self.last + LOOKS - back) % LOOKS);
        let within = places.take_while(|place| now.saturating_sub(self.looks[*place].at) <= SPAN);
        let first = within.filter(|place| of(*place).is_some()).last()?;
        let span = now.saturating_sub(self.looks[first].at);
        (span >= LEAST_SPAN).then_some((first, self.last))
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
