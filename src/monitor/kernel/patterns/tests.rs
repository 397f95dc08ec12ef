//! The lines of lines.txt, and rules on the table.

use super::*;

/// Of each line of lines.txt the pattern, the level, the source and the text.
fn lines() -> impl Iterator<Item = [&'static str; 4]> {
    let lines = include_str!("lines.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.splitn(4, " | ").collect::<Vec<_>>().try_into().unwrap())
}

fn name(text: &str, level: u8) -> &'static str {
    find(text, level).map_or("-", |index| &pattern(index).name)
}

#[test]
fn each_line_has_its_pattern_or_none() {
    let is_wrong = |[pattern, level, _, text]: &[&str; 4]| name(text, level.parse().unwrap()) != *pattern;
    let wrong: Vec<_> = lines().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_pattern_has_lines() {
    toml::from_str::<Table>(include_str!("patterns.toml")).unwrap();
    for pattern in &TABLE.patterns {
        let count = lines().filter(|[name, ..]| *name == pattern.name).count();
        assert!(count >= 2, "{}: {count}", pattern.name);
    }
}

#[test]
fn a_program_whose_name_resembles_a_problem_has_none() {
    let crashed =
        "kernel BUG at [812]: segfault at 0 ip 0 sp 0 error 4 in EDAC MC0: 1 UE due to hardware memory corruption";
    assert_eq!(name(crashed, 6), "-");
    assert_eq!(name("kernel BUG at : page allocation failure: order:9, mode:0xc0cc0", 4), "-");
    assert_eq!(name("kernel BUG at : vmalloc error: size 1, page order 9, failed to allocate pages", 4), "-");
}

/// `vfs_parse_fs_param` and `ovl_parse_opt` of the kernel: in a user namespace, everybody may mount tmpfs and
/// overlayfs.
#[test]
fn an_option_of_a_mount_that_resembles_a_problem_is_none() {
    for option in ["AMD-Vi: Event logged [IOTLB_INV_TIMEOUT ", ": Detected Tx Unit Hang", ": writeback error on x"] {
        assert_eq!(name(&format!("tmpfs: Unknown parameter '{option}'"), 3), "-");
        assert_eq!(name(&format!("overlayfs: unrecognized mount option \"{option}\" or missing value"), 3), "-");
    }
}

/// A line of the kernel's may have such a name anywhere, as ``netlink: 4 bytes leftover after parsing attributes in process `NAME'.``
#[test]
fn no_name_of_a_program_is_long_enough_for_a_pattern_that_begins_anywhere() {
    for line in TABLE.patterns.iter().flat_map(|pattern| &pattern.lines).filter(|line| line.starts_with('*')) {
        assert!(line.replace('*', "").len() > 15, "{line}");
    }
}

#[test]
fn some_lines_count_at_a_less_severe_level() {
    for (line, level) in [
        ("device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode", 6),
        ("device-mapper: thin: 253:4: switching pool to fail mode", 6),
        ("neighbour: arp_cache: neighbor table overflow!", 6),
        ("traps: systemd[1] trap invalid opcode ip:55d0c0a0 sp:7ffc error:0 in systemd[55d0+1000]", 6),
        ("nfs: server nas not responding, still trying", 5),
    ] {
        assert_ne!(name(line, level), "-", "{line}");
        assert_eq!(name(line, level + 1), "-", "{line}");
    }
    // The names of programs: `systemd[1] trap`, and one of another pid.
    for line in
        ["traps: systemd[1] trap[77] trap int3 ip:1 sp:2 error:0", "traps: systemd[812] trap invalid opcode ip:1"]
    {
        assert_eq!(name(line, 6), "-", "{line}");
    }
    assert_eq!(name("INFO: task kubelet:7 blocked for more than 122 seconds.", 5), "-");
    for (level, line) in &TABLE.less_severe {
        let start = line.split('*').next().map_or(0, str::len);
        assert!(*level < 6 || start > "traps: ".len() + 15 || (start > 15 && !line.starts_with("traps: ")), "{line}");
    }
}
