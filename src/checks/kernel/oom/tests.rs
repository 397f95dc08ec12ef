//! Recorded lines of several kernels.

use super::*;

/// What a story of lines, one a millisecond, hands out, the end of the log included.
fn kills(lines: &[&str]) -> Vec<OomKill> {
    let mut oom = OomLines::default();
    let mut kills = Vec::new();
    for (i, line) in (0_u64..).zip(lines) {
        oom.take(Duration::from_millis(i), line, &mut |kill| kills.push(kill));
    }
    oom.flush(&mut |kill| kills.push(kill));
    kills
}

fn the_one(lines: &[&str]) -> OomKill {
    let mut kills = kills(lines);
    assert_eq!(kills.len(), 1, "{kills:#?}");
    kills.remove(0)
}

/// 3.10.0-327.4.5.el7: kubernetes/kubernetes#56891. It names one process to kill and kills its child.
#[test]
fn linux_3_10() {
    let path = "/kubepods/pod95387fa4-da9c-11e7-9d36-5254b24cbf5e/6895a3e13439535852d3184ac2aadd26d7363cc035f171545ec7d4ce74073b0b";
    let task = format!("Task in {path} killed as a result of limit of {path}");
    let kill = the_one(&[
        "java invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=-998",
        &task,
        "[28438]     0 28438  5063909   119961    1661   136409          -998 java",
        "Memory cgroup out of memory: Kill process 24572 (java) score 0 or sacrifice child",
        "Killed process 28438 (java) total-vm:20255636kB, anon-rss:466160kB, file-rss:13684kB",
    ]);
    assert_eq!((kill.pid, kill.comm.as_str()), (28438, "java"));
    assert_eq!(kill.scope, Scope::Cgroup);
    assert_eq!(kill.cgroup.as_deref(), Some(path));
    assert_eq!(kill.limit_cgroup.as_deref(), Some(path));
    assert_eq!(
        kill.pod.unwrap().uid,
        "95387fa4-da9c-11e7-9d36-5254b24cbf5e"
    );
    assert_eq!(kill.rss_bytes, Some((466_160 + 13_684) * 1024));
}

/// 4.19 of Alibaba Cloud Linux, from its help page on the OOM killer: a limit of a parent's, and none but the host's.
#[test]
fn limits_of_a_parent_and_of_the_host() {
    let end =
        "Killed process 4711 (test) total-vm:1024kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB";
    let kill = the_one(&[
        "Task in /mm_test/2 killed as a result of limit of /mm_test",
        "Memory cgroup out of memory: Kill process 4711 (test) score 1 or sacrifice child",
        end,
    ]);
    assert_eq!(kill.cgroup.as_deref(), Some("/mm_test/2"));
    assert_eq!(kill.limit_cgroup.as_deref(), Some("/mm_test"));
    assert_eq!(kill.pod, None);
    let kill = the_one(&[
        "Task in /user.slice killed as a result of limit of host",
        "Out of memory: Kill process 4711 (test) score 1 or sacrifice child",
        end,
    ]);
    assert_eq!(kill.scope, Scope::Host);
    assert_eq!(kill.limit_cgroup, None);
    assert_eq!(kill.cgroup.as_deref(), Some("/user.slice"));
}

/// 4.14 of Container-Optimized OS, GKE 1.12: kubernetesquestions.com/questions/57855013.
#[test]
fn a_pause_container_on_gke() {
    let kill = the_one(&[
        "Memory cgroup out of memory: Kill process 605624 (pause) score 0 or sacrifice child",
        "Killed process 605624 (pause) total-vm:1024kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB",
    ]);
    assert_eq!((kill.pid, kill.scope), (605_624, Scope::Cgroup));
    assert_eq!(kill.cgroup, None);
    assert_eq!(kill.rss_bytes, Some(4096));
}

/// 5.0, as Michal Hocko had it on the kernel's memory list: the first with the summary, still without `cpuset=`.
#[test]
fn linux_5_0() {
    let kill = the_one(&[
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/leaker,task_memcg=/leaker,task=leaker,pid=23793,uid=0",
        "Memory cgroup out of memory: Killed process 23793 (leaker) total-vm:2623712kB, anon-rss:506500kB, file-rss:1268kB, shmem-rss:0kB",
        "oom_reaper: reaped process 23793 (leaker), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ]);
    assert_eq!((kill.pid, kill.comm.as_str()), (23793, "leaker"));
    assert_eq!(kill.cgroup.as_deref(), Some("/leaker"));
    assert_eq!(kill.limit_cgroup.as_deref(), Some("/leaker"));
    assert_eq!(kill.rss_bytes, Some((506_500 + 1_268) * 1024));
}

/// 5.15, leptonai/gpud#70: a pod's own limit, its node inside LXC. `Killed process` was lost.
#[test]
fn a_summary_without_its_end() {
    let kill = the_one(&[
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-ec9ee26695deb4cc72bc665efff1cf3a03fdfb12f1303e02fe9252985e084a95.scope,mems_allowed=0-1,oom_memcg=/lxc.payload....-lxc/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podeded8c65_6e8e_4c6e_a889_3e427565c740.slice,task_memcg=/lxc.payload.ny2g2r5hh3-lxc/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podeded8c65_6e8e_4c6e_a889_3e427565c740.slice/cri-containerd-ec9ee26695deb4cc72bc665efff1cf3a03fdfb12f1303e02fe9252985e084a95.scope,task=pt_main_thread,pid=461754,uid=0",
    ]);
    assert_eq!((kill.pid, kill.comm.as_str()), (461_754, "pt_main_thread"));
    let pod = kill.pod.unwrap();
    assert_eq!(pod.uid, "eded8c65-6e8e-4c6e-a889-3e427565c740");
    assert!(pod.container.unwrap().starts_with("ec9ee266"));
    assert_eq!(kill.rss_bytes, None);
}

/// The kernel's words of 6.1, as a fake kubelet and a hog met them in a guest.
const GLOBAL: &str = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/burstable/pod12345678-1234-1234-1234-123456789abc,task=vhog,pid=118,uid=0";
const GLOBAL_END: &str = "Out of memory: Killed process 118 (vhog) total-vm:402108kB, anon-rss:351284kB, file-rss:1152kB, shmem-rss:0kB, UID:0 pgtables:740kB oom_score_adj:1000";

#[test]
fn linux_6_1() {
    let kill = the_one(&[GLOBAL, GLOBAL_END]);
    assert_eq!((kill.pid, kill.scope), (118, Scope::Host));
    assert_eq!(kill.limit_cgroup, None);
    assert!(kill.pod.is_some());
}

/// 6.18.44, a unit of a node of `tests/node` with `MemoryLimit=16M` (cgroup v1), read from /dev/kmsg.
#[test]
fn linux_6_18() {
    let kill = the_one(&[
        "claims-hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=claims-1,mems_allowed=0,oom_memcg=/nodevigil-lab-4026531836-11735-3955050/claims-1/system.slice/claims-hog.service,task_memcg=/nodevigil-lab-4026531836-11735-3955050/claims-1/system.slice/claims-hog.service,task=claims-hog,pid=12233,uid=0",
        "Memory cgroup out of memory: Killed process 12233 (claims-hog) total-vm:19076kB, anon-rss:16256kB, file-rss:1552kB, shmem-rss:0kB, UID:0 pgtables:80kB oom_score_adj:0",
    ]);
    assert_eq!((kill.pid, kill.comm.as_str()), (12233, "claims-hog"));
    let ends = |path: &Option<String>| {
        path.as_deref()
            .unwrap()
            .ends_with("/system.slice/claims-hog.service")
    };
    assert!(ends(&kill.cgroup) && ends(&kill.limit_cgroup));
    assert_eq!(kill.rss_bytes, Some((16_256 + 1_552) * 1024));
}

/// 6.18.44, a group of cgroup v1 with `memory.limit_in_bytes` of 16M and none with swap, read from /dev/kmsg.
const LIMIT_6_18: [&str; 6] = [
    "tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "memory: usage 16384kB, limit 16384kB, failcnt 65",
    "memory+swap: usage 16384kB, limit 9007199254740988kB, failcnt 0",
    "kmem: usage 284kB, limit 9007199254740988kB, failcnt 0",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/em-rec,task_memcg=/em-rec,task=tail,pid=6932,uid=0",
    "Memory cgroup out of memory: Killed process 6932 (tail) total-vm:18812kB, anon-rss:15872kB, file-rss:1672kB, shmem-rss:0kB, UID:0 pgtables:80kB oom_score_adj:0",
];

#[test]
fn the_limit_ahead_of_a_summary() {
    let kill = the_one(&LIMIT_6_18);
    assert_eq!(kill.limit_bytes, Some(16 << 20));
    assert_eq!(kill.of_limit(), " of 16 MiB");
}

/// bluek8s/kubedirector#356: a container on a kernel before 5.0, whose limit of memory with swap was the one that counted failures.
#[test]
fn the_limit_behind_an_announcement() {
    let path = "/kubepods/pod951f6bc5-c5a5-11ea-8707-80e455f266a2/024952d653ef1cd852f875a61bd27cf45cb1fd6cab3659ca7e5f12f037d99aa9";
    let task = format!("Task in {path} killed as a result of limit of {path}");
    let kill = the_one(&[
        &task,
        "memory: usage 524288kB, limit 524288kB, failcnt 0",
        "memory+swap: usage 524288kB, limit 524288kB, failcnt 38",
        "kmem: usage 16560kB, limit 9007199254740988kB, failcnt 0",
        "Memory cgroup out of memory: Kill process 62685 (bash) score 0 or sacrifice child",
        "Killed process 62769 (cp) total-vm:17564kB, anon-rss:88kB, file-rss:1428kB, shmem-rss:0kB",
    ]);
    assert_eq!(kill.limit_bytes, Some(512 << 20));
    assert_eq!(kill.cgroup.as_deref(), Some(path));
}

/// ironcore-dev/dpservice#74: cgroup v2 has a line of its own for swap, which is no limit of memory.
#[test]
fn the_limit_on_cgroup_v2() {
    let kill = the_one(&[
        "memory: usage 1048576kB, limit 1048576kB, failcnt 141",
        "swap: usage 0kB, limit 9007199254740988kB, failcnt 0",
        LIMIT_6_18[4],
        LIMIT_6_18[5],
    ]);
    assert_eq!(kill.limit_bytes, Some(1 << 30));
}

#[test]
fn the_nearer_of_two_limits_was_reached() {
    let of = |memory, with_swap| the_one(&[memory, with_swap, LIMIT_6_18[4]]).of_limit();
    let nearer = of(
        "memory: usage 9000kB, limit 16384kB, failcnt 0",
        "memory+swap: usage 20000kB, limit 20000kB, failcnt 9",
    );
    assert_eq!(nearer, " of 20000 KiB");
    let alone = of(
        "memory: usage 9000kB, limit 9007199254740988kB, failcnt 0",
        "memory+swap: usage 20480kB, limit 20480kB, failcnt 9",
    );
    assert_eq!(alone, " of 20 MiB");
    let neither = of(
        "memory: usage 9000kB, limit 9007199254740928kB, failcnt 0",
        "memory+swap: usage 20kB, limit 9007199254740928kB, failcnt 9",
    );
    assert_eq!(neither, "");
}

/// No other one's limit is told, if it is not known.
#[test]
fn a_limit_is_for_one_kill_of_its_group_only() {
    let [_, limit, _, _, summary, end] = LIMIT_6_18;
    let told = |lines: &[&str]| {
        kills(lines)
            .iter()
            .map(OomKill::of_limit)
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&[limit, summary, end, end]), [" of 16 MiB", ""]);
    assert_eq!(told(&[limit, GLOBAL, GLOBAL_END, end]), ["", ""]);
    assert_eq!(told(&["memory: usage 1kB, limit kB", summary, end]), [""]);
    let together = "Tasks in /em-rec are going to be killed due to memory.oom.group set";
    let all = told(&[limit, summary, end, together, end]);
    assert_eq!(all, [" of 16 MiB", " of 16 MiB"]);
    // Between them lines were lost, or much time has passed.
    let mut oom = OomLines::default();
    let mut kills = Vec::new();
    oom.take(Duration::ZERO, limit, &mut |kill| kills.push(kill));
    oom.have_missed();
    oom.take(Duration::ZERO, summary, &mut |kill| kills.push(kill));
    oom.take(Duration::ZERO, end, &mut |kill| kills.push(kill));
    oom.take(Duration::ZERO, limit, &mut |kill| kills.push(kill));
    let minute = Duration::from_mins(1);
    oom.take(minute, summary, &mut |kill| kills.push(kill));
    oom.flush(&mut |kill| kills.push(kill));
    let told: Vec<_> = kills.iter().map(|kill| kill.limit_bytes).collect();
    assert_eq!(told, [None, None]);
}

/// The summary is left out when there are more than ten in five seconds; the last line never is.
#[test]
fn a_storm_leaves_the_summary_out() {
    let kills = kills(&[
        GLOBAL,
        GLOBAL_END,
        "Memory cgroup out of memory: Killed process 119 (x) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:740kB oom_score_adj:1000",
        GLOBAL,
        "Memory cgroup out of memory: Killed process 120 (y) total-vm:1kB, anon-rss:1kB",
    ]);
    let seen: Vec<_> = kills
        .iter()
        .map(|k| (k.pid, k.scope, k.cgroup.is_some()))
        .collect();
    assert_eq!(
        seen,
        [
            (118, Scope::Host, true),
            (119, Scope::Cgroup, false),
            (118, Scope::Host, true), // announced, and its end was lost
            (120, Scope::Cgroup, false),
        ]
    );
}

#[test]
fn a_whole_cgroup_dies_together() {
    let kills = kills(&[
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/p,task_memcg=/p/c,task=a,pid=1,uid=0",
        "Memory cgroup out of memory: Killed process 1 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0",
        "Tasks in /p are going to be killed due to memory.oom.group set",
        "Memory cgroup out of memory: Killed process 2 (b) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0",
        "Memory cgroup out of memory: Killed process 3 (c) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0",
    ]);
    let seen: Vec<_> = kills.iter().map(|k| (k.pid, k.cgroup.as_deref())).collect();
    assert_eq!(seen, [(1, Some("/p/c")), (2, Some("/p")), (3, Some("/p"))]);
}

/// Fifteen bytes that a program chose for itself.
#[test]
fn a_name_cannot_pretend() {
    let kill = the_one(&[
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/p,task_memcg=/p/c,task=a,pid=1,uid=0,pid=77,uid=0",
        "Memory cgroup out of memory: Killed process 77 (a) (x) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0",
    ]);
    assert_eq!((kill.pid, kill.comm.as_str()), (77, "a) (x"));
    assert_eq!(kill.cgroup.as_deref(), Some("/p/c"));
    // Who only speaks of it.
    assert_eq!(
        kills(&["systemd[1]: x: Killed process 5 (y) total-vm:1kB"]),
        []
    );
    assert_eq!(kills(&["Killed process"]), []);
    assert_eq!(kills(&["oom-kill:"]), []);
    assert_eq!(
        kills(&[
            "Memory cgroup out of memory: OOM victim 1 (x) is already exiting. Skip killing the task"
        ]),
        []
    );
    assert_eq!(kills(&["Killed process 99999999999 (y) total-vm:1kB"]), []);
}

/// What was announced long ago is not the next one's.
#[test]
fn an_old_announcement_is_let_go() {
    let mut oom = OomLines::default();
    let mut kills = Vec::new();
    oom.take(Duration::ZERO, GLOBAL, &mut |kill| kills.push(kill));
    assert!(oom.waits());
    let end = GLOBAL_END.replace("118", "119");
    oom.take(Duration::from_mins(1), &end, &mut |kill| kills.push(kill));
    assert!(!oom.waits());
    let seen: Vec<_> = kills.iter().map(|k| (k.pid, k.cgroup.is_some())).collect();
    assert_eq!(seen, [(118, true), (119, false)]);
}
