use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// A host whose groups are looked at.
struct Host {
    growth: Growth,
    at: Duration,
    available: u64,
    kernel: u64,
    groups: Vec<u64>,
}

impl Host {
    fn new(subjects: &[Subject]) -> Self {
        let mut growth = Growth::default();
        for subject in subjects {
            growth.add(subject.clone());
        }
        Self {
            growth,
            at: Duration::from_secs(1000),
            available: 4096 * MIB,
            kernel: 100 * MIB,
            groups: vec![50 * MIB; subjects.len()],
        }
    }

    /// Two seconds on: so much every group has grown, in MiB.
    fn grow(&mut self, groups: &[u64], kernel: u64) {
        self.at += Duration::from_secs(2);
        for (group, by) in self.groups.iter_mut().zip(groups) {
            *group += by * MIB;
        }
        self.kernel += kernel * MIB;
        let by = groups.iter().sum::<u64>() + kernel;
        self.available -= by * MIB;
        self.look();
    }

    fn look(&mut self) {
        self.growth
            .begin(self.at, self.available, Some(self.kernel));
        for (number, bytes) in self.groups.iter().enumerate() {
            self.growth.used(number, *bytes);
        }
        for number in self.growth.suspects().into_iter().flatten() {
            self.growth.held(number, self.groups[number]);
        }
    }

    fn grower(&self) -> Option<Grower> {
        let name = |uid: &str| (uid == "known").then(|| "default/web".to_owned());
        self.growth.grower(name)
    }
}

fn pod(uid: &str) -> Subject {
    Subject::Pod(uid.to_owned())
}

fn group(path: &str) -> Subject {
    Subject::Group(path.to_owned())
}

#[test]
fn who_grows_is_named_and_not_who_is_large() {
    let mut host = Host::new(&[pod("large"), pod("known"), group("system.slice/x.service")]);
    host.groups[0] = 2048 * MIB;
    host.look();
    assert_eq!(host.grower(), None, "one look shows no growth");
    for _ in 0..8 {
        host.grow(&[0, 40, 2], 0);
    }
    let wanted = Grower {
        who: Who::Pod("default/web".to_owned()),
        bytes_per_sec: 20 * MIB,
        share_percent: Some(95),
    };
    assert_eq!(host.grower(), Some(wanted));
    // It stops, and after ten seconds it is nobody any more.
    for _ in 0..6 {
        host.grow(&[0, 0, 0], 0);
    }
    assert_eq!(host.grower(), None);
}

#[test]
fn a_pod_without_a_name_has_its_uid() {
    let mut host = Host::new(&[pod("0a1b")]);
    host.look();
    host.grow(&[40], 0);
    assert_eq!(host.grower().unwrap().who, Who::Pod("0a1b".to_owned()));
}

#[test]
fn what_the_pods_do_not_explain_is_another_groups_or_the_kernels() {
    let ssh = "system.slice/sshd.service";
    for (by, kernel, who) in [
        ([10, 60], 0, Who::Group(ssh.to_owned())),
        ([10, 20], 60, Who::Kernel),
        // Most of it is the pods'.
        ([60, 20], 30, Who::Pod("0a1b".to_owned())),
        // Nobody explains half of it: the fastest.
        ([30, 10], 29, Who::Pod("0a1b".to_owned())),
    ] {
        let mut host = Host::new(&[pod("0a1b"), group(ssh)]);
        host.look();
        for _ in 0..3 {
            host.grow(&by, kernel);
        }
        assert_eq!(host.grower().unwrap().who, who, "{by:?} {kernel}");
    }
}

#[test]
fn memory_that_nobody_loses_has_no_shares() {
    let mut host = Host::new(&[pod("0a1b")]);
    host.look();
    for _ in 0..3 {
        host.grow(&[10], 0);
        host.available += 10 * MIB; // another one gave as much back
    }
    host.look();
    assert_eq!(host.grower().unwrap().share_percent, None);
}

#[test]
fn a_small_pod_that_begins_to_grow_is_found_among_many_large_ones() {
    let mut subjects: Vec<Subject> = (0..100).map(|i| pod(&format!("large{i}"))).collect();
    subjects.push(pod("small"));
    let mut host = Host::new(&subjects);
    host.groups[100] = MIB;
    host.look();
    host.grow(&[0; 101], 0);
    let mut by = [0; 101];
    by[100] = 30;
    for looks in 1..=2 {
        host.grow(&by, 0);
        let named = host.grower().map(|grower| grower.who);
        assert_eq!(named.is_some(), looks == 2, "{named:?}");
    }
    assert_eq!(host.grower().unwrap().who, Who::Pod("small".to_owned()));
}

#[test]
fn looks_of_another_time_do_not_count() {
    let mut host = Host::new(&[pod("0a1b")]);
    host.look();
    host.groups[0] += 500 * MIB;
    host.at += STALE + Duration::from_secs(1);
    host.look();
    assert_eq!(host.grower(), None);
}

#[test]
fn there_is_a_bound_for_each_kind() {
    let mut growth = Growth::default();
    assert_eq!(
        (growth.room(true), growth.room(false)),
        (MAX_PODS, MAX_GROUPS)
    );
    growth.add(pod("one"));
    growth.add(group("one"));
    assert_eq!(
        (growth.room(true), growth.room(false)),
        (MAX_PODS - 1, MAX_GROUPS - 1)
    );
    growth.remove(0);
    assert_eq!(
        (growth.room(true), growth.room(false)),
        (MAX_PODS, MAX_GROUPS - 1)
    );
    // A row is small: all of them stay below half a MiB.
    assert!(size_of::<Row>() * (MAX_PODS + MAX_GROUPS) < 512 * 1024);
}

proptest! {
    /// Whatever the numbers, nothing breaks, and who is named has grown.
    #[test]
    fn whoever_is_named_has_grown(
        looks in proptest::collection::vec((0_u64..30_000, any::<u64>(), any::<u64>(), any::<[u64; 4]>()), 1..40),
    ) {
        let mut growth = Growth::default();
        for subject in [pod("a"), pod("b"), group("c"), group("d")] {
            growth.add(subject);
        }
        let mut at = Duration::ZERO;
        for (millis, available, kernel, used) in looks {
            at += Duration::from_millis(millis);
            growth.begin(at, available, Some(kernel));
            for (number, bytes) in used.into_iter().enumerate() {
                growth.used(number, bytes);
            }
            for number in growth.suspects().into_iter().flatten() {
                growth.held(number, used[number]);
            }
            if let Some(grower) = growth.grower(|_| None) {
                prop_assert!(grower.bytes_per_sec > 0);
                prop_assert!(grower.share_percent.is_none_or(|share| share <= 100));
            }
        }
    }
}
