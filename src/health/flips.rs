//! How often a status flips at the most, whatever comes and goes.

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Now {
    Now {
        uptime: Duration::from_secs(secs),
        wall: Timestamp::UNIX_EPOCH,
    }
}

proptest! {
    /// Whatever is sampled, also between `True` and `Unknown`, and however it comes and goes.
    #[test]
    fn samples_flip_sixteen_times_an_hour_at_most(
        steps in flips_of(&[
            Reason::KubeletIsHealthy,
            Reason::KubeletHung,
            Reason::KubeletHealthzDown,
            Reason::KubeletProbeFailed,
        ])
    ) {
        let flips = flips(&steps);
        prop_assert!(most_in_an_hour(&flips) <= 16, "{flips:?}");
    }

    /// Each spell of `False` lasts a healthy spell.
    #[test]
    fn facts_flip_twice_a_spell_at_most(
        steps in flips_of(&[
            Reason::KubeletIsHealthy,
            Reason::KubeletCrashed,
            Reason::KubeletFrozen,
            Reason::KubeletStartLimitHit,
        ])
    ) {
        let flips = flips(&steps);
        prop_assert!(most_in_an_hour(&flips) <= 7200 / 60, "{flips:?}");
    }
}

/// For hours: often only just as long as something waits.
#[expect(clippy::disallowed_methods, reason = "it is proptest's variable")]
fn flips_of(reasons: &'static [Reason]) -> impl Strategy<Value = Vec<(Reason, u64)>> {
    let lasts = prop_oneof![
        Just(1_u64),
        Just(20),
        Just(21),
        Just(60),
        Just(61),
        0..70_u64,
        0..1000_u64
    ];
    // The memory of the damping is an hour: a hundred steps are four on average. Whoever asks for more cases gets longer ones too.
    let most = std::env::var_os("PROPTEST_CASES").map_or(100, |_| 300);
    prop::collection::vec((prop::sample::select(reasons), lasts), 1..most)
}

/// When the status flips, with a healthy spell of a minute and a look each second.
fn flips(steps: &[(Reason, u64)]) -> Vec<u64> {
    let mut conditions = Conditions::new(Duration::from_mins(1));
    let (mut now, mut flips, mut status) = (1000, Vec::new(), None);
    for (reason, lasts) in steps {
        let found = [Finding {
            reason: *reason,
            message: "m".to_owned(),
        }];
        for _ in 0..=*lasts {
            conditions.observe(
                ConditionType::KubeletHealthy,
                "kubelet",
                &found,
                &[],
                at(now),
            );
            let is = conditions
                .get(ConditionType::KubeletHealthy)
                .verdict()
                .map(|v| v.status);
            if status.is_some() && is != status {
                flips.push(now);
            }
            status = is;
            now += 1;
        }
    }
    flips
}

fn most_in_an_hour(flips: &[u64]) -> usize {
    let in_an_hour = |from: u64| (flips.iter()).filter(move |at| (from..from + 3600).contains(at));
    let counts = flips.iter().map(|from| in_an_hour(*from).count());
    counts.max().unwrap_or(0)
}
