//! The loads, each with what is to come of it.

use anyhow::{Context as _, Result};

use super::guest::Setting;
use super::scenarios::{Load, Outcome, Scenario};

const PLAIN: Setting = Setting {
    swap_disk: false,
    zram_percent: 0,
    kubelet_oom_score_adjust: -999,
    memory_mib: 512,
    real_kubelet: false,
};
const ZRAM: Setting = Setting {
    zram_percent: 50,
    ..PLAIN
};
const SWAP: Setting = Setting {
    swap_disk: true,
    ..PLAIN
};
const KUBELET_FIRST: Setting = Setting {
    kubelet_oom_score_adjust: 1000,
    ..PLAIN
};
const fn grow(percent_per_s: u32) -> Load {
    Load::Grow {
        percent_per_s,
        random_bytes: 0,
    }
}

const LETHAL_KUBELET: Scenario = Scenario {
    name: "lethal-kubelet",
    what: "lethal: grows by 8 % of the memory a second, and the kernel kills the stand-in kubelet",
    outcome: Outcome::Kill,
    setting: KUBELET_FIRST,
    disk: 300,
    seconds: 75,
    lead: 0,
    load: Load::GrowUnkillable { percent_per_s: 8 },
};

/// All of them.
pub(crate) const ALL: [Scenario; 21] = [
    lethal(
        "lethal-1",
        "lethal: grows by 1 % of the memory a second",
        1,
        260,
    ),
    lethal(
        "lethal-2",
        "lethal: grows by 2 % of the memory a second",
        2,
        110,
    ),
    lethal(
        "lethal-4",
        "lethal: grows by 4 % of the memory a second",
        4,
        180,
    ),
    lethal(
        "lethal-8",
        "lethal: grows by 8 % of the memory a second",
        8,
        160,
    ),
    lethal(
        "lethal-20",
        "lethal: grows by 20 % of the memory a second",
        20,
        60,
    ),
    LETHAL_KUBELET,
    Scenario {
        name: "lethal-real-kubelet",
        what: "lethal: grows by 8 % of the memory a second, and the kernel kills the real kubelet",
        setting: Setting {
            real_kubelet: true,
            ..KUBELET_FIRST
        },
        ..LETHAL_KUBELET
    },
    livelock(
        "livelock-100",
        "livelock: 2 % available, a disk of 100 requests a second",
        100,
    ),
    livelock(
        "livelock-300",
        "livelock: 2 % available, a disk of 300 requests a second",
        300,
    ),
    benign(
        "pod-limit",
        "benign: two readers thrash in their pod's limit of 16 MiB",
        1000,
        40,
        Load::ThrashInLimit,
    ),
    benign(
        "read-disk",
        "benign: the disk is read from beginning to end",
        1000,
        40,
        Load::ReadDisk,
    ),
    benign(
        "burst",
        "benign: 60 % of the memory is used in three seconds, then nothing more",
        1000,
        40,
        Load::GrowTo {
            percent_per_s: 13,
            percent: 38,
            random_bytes: 0,
            touch_per_s: 20_000,
        },
    ),
    Scenario {
        lead: 20,
        ..benign(
            "steady",
            "benign: 15 % of the memory stays available, used long before",
            1000,
            35,
            Load::GrowUntil {
                percent_per_s: 10,
                available_percent: 15,
                touch_per_s: 20_000,
            },
        )
    },
    benign(
        "write-files",
        "benign: an image is unpacked, 240 MiB in twelve seconds",
        1000,
        40,
        Load::WriteFiles,
    ),
    Scenario {
        name: "zram-absorbs",
        what: "zram absorbs the growth, no kill",
        outcome: Outcome::Nothing,
        setting: ZRAM,
        disk: 1000,
        seconds: 40,
        lead: 0,
        load: Load::GrowTo {
            percent_per_s: 8,
            percent: 80,
            random_bytes: 1024,
            touch_per_s: 500,
        },
    },
    Scenario {
        name: "zram-lethal",
        what: "lethal: grows by 4 % of the memory a second beyond what zram can take",
        outcome: Outcome::Kill,
        setting: ZRAM,
        disk: 1000,
        seconds: 90,
        lead: 0,
        load: Load::Grow {
            percent_per_s: 4,
            random_bytes: 2048,
        },
    },
    Scenario {
        name: "swap-absorbs",
        what: "swap on a disk of 1000 requests a second absorbs the growth, no kill",
        outcome: Outcome::Nothing,
        setting: SWAP,
        disk: 1000,
        seconds: 45,
        lead: 0,
        load: Load::GrowTo {
            percent_per_s: 4,
            percent: 90,
            random_bytes: 1024,
            touch_per_s: 100,
        },
    },
    Scenario {
        name: "swap-idle",
        what: "most of a pod lies in swap and is not touched, no kill",
        outcome: Outcome::Nothing,
        setting: SWAP,
        disk: 1000,
        seconds: 60,
        lead: 0,
        load: Load::GrowTo {
            percent_per_s: 8,
            percent: 100,
            random_bytes: 1024,
            touch_per_s: 0,
        },
    },
    Scenario {
        name: "swap-lethal",
        what: "lethal: grows by 8 % of the memory a second until memory and swap are full",
        outcome: Outcome::Kill,
        setting: SWAP,
        disk: 3000,
        seconds: 120,
        lead: 0,
        load: Load::Grow {
            percent_per_s: 8,
            random_bytes: 1024,
        },
    },
    Scenario {
        name: "kubelet-limit",
        what: "the stand-in kubelet is killed in its own limit of 30 MiB, the host has memory",
        outcome: Outcome::OwnLimit,
        setting: PLAIN,
        disk: 1000,
        seconds: 30,
        lead: 0,
        load: Load::LimitKubelet { mib: 30 },
    },
    Scenario {
        name: "kubelet-limit-slow-disk",
        what: "the stand-in kubelet is killed in its own limit of 40 MiB on a slow disk, the host has memory",
        outcome: Outcome::OwnLimit,
        setting: PLAIN,
        disk: 100,
        seconds: 40,
        lead: 0,
        load: Load::LimitKubelet { mib: 40 },
    },
];

const fn lethal(
    name: &'static str,
    what: &'static str,
    percent_per_s: u32,
    seconds: u64,
) -> Scenario {
    Scenario {
        name,
        what,
        outcome: Outcome::Kill,
        setting: PLAIN,
        disk: 1000,
        seconds,
        lead: 0,
        load: grow(percent_per_s),
    }
}

const fn livelock(name: &'static str, what: &'static str, disk: u32) -> Scenario {
    Scenario {
        name,
        what,
        outcome: Outcome::Thrash,
        setting: PLAIN,
        disk,
        seconds: 42,
        lead: 0,
        load: Load::GrowUntil {
            percent_per_s: 8,
            available_percent: 2,
            touch_per_s: 20_000,
        },
    }
}

const fn benign(
    name: &'static str,
    what: &'static str,
    disk: u32,
    seconds: u64,
    load: Load,
) -> Scenario {
    Scenario {
        name,
        what,
        outcome: Outcome::Nothing,
        setting: PLAIN,
        disk,
        seconds,
        lead: 0,
        load,
    }
}

/// The load of this name.
pub(crate) fn named(name: &str) -> Result<Scenario> {
    ALL.iter()
        .find(|scenario| scenario.name == name)
        .copied()
        .with_context(|| format!("no load is named {name}"))
}
