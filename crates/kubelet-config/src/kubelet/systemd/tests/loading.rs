//! Facts 1 to 11: where the unit and its drop-ins are.

use super::*;

const UNIT: &str = "[Service]\nExecStart=/bin/x\n";

fn drop_in(variable: &str) -> String {
    format!("[Service]\nEnvironment={variable}\n")
}

fn dropins(unit: &Unit) -> Vec<&str> {
    unit.dropins.iter().map(|path| path.to_str().unwrap()).collect()
}

#[test]
fn fact_1_the_first_directory_wins_and_lib_is_usr_lib() {
    let tree = service("ExecStart=/bin/x").link("/lib", "usr/lib");
    let unit = load(&tree);
    assert_eq!(unit.fragment, Some(PathBuf::from(format!("{USR}/k.service"))));
    let tree = tree.file(format!("{ETC}/k.service"), "[Service]\nExecStart=/bin/y\n");
    assert_eq!(argv(&load(&tree)), ["/bin/y"]);
}

#[test]
fn fact_1_a_given_search_path_counts() {
    let tree = MemoryTree::new().file("/opt/units/k.service", UNIT);
    let manager = Manager { unit_path: Some(vec![PathBuf::from("/opt/units")]), ..Manager::default() };
    assert_eq!(resolve_unit(&tree, "k.service", &manager).load, LoadState::Loaded);
    assert_eq!(load(&tree).load, LoadState::NotFound);
}

#[test]
fn fact_2_masks_are_links_to_null_and_empty_files() {
    let path = format!("{ETC}/k.service");
    let masked = LoadState::Masked { by: Location::file(&path) };
    let tree = service("ExecStart=/bin/x").file(format!("{USR}/k.service.d/a.conf"), drop_in("A=1"));
    let unit = load(&tree.clone().link(&path, "/dev/null"));
    assert_eq!((&unit.load, unit.argv.len()), (&masked, 0));
    assert_eq!(dropins(&unit).len(), 1);
    assert_eq!(load(&tree.clone().file(&path, "")).load, masked);
    // Comments only are no mask, and a mask below the fragment has no effect.
    assert!(matches!(load(&tree.file(&path, "# x\n")).load, LoadState::BadSetting { .. }));
    let below = MemoryTree::new().file(&path, UNIT).link(format!("{USR}/k.service"), "/dev/null");
    assert_eq!(load(&below).load, LoadState::Loaded);
    let alone = MemoryTree::new().file(format!("{USR}/k.service.d/a.conf"), UNIT);
    assert_eq!(load(&alone).load, LoadState::NotFound);
}

#[test]
fn fact_3_aliases_share_their_drop_ins() {
    let tree = MemoryTree::new()
        .file(format!("{USR}/k.service"), "[Service]\nEnvironment=F=%n\nExecStart=/bin/x $F $D\n")
        .link(format!("{ETC}/other.service"), format!("{USR}/k.service"))
        .file(format!("{ETC}/k.service.d/b.conf"), drop_in("D=%n"))
        .file(format!("{ETC}/other.service.d/a.conf"), drop_in("E=1"))
        .file(format!("{ETC}/other.service.d/b.conf"), drop_in("D=lost"));
    for name in ["k.service", "other.service"] {
        let unit = resolve_unit(&tree, name, &Manager::default());
        assert_eq!(unit.names, ["k.service", "other.service"]);
        assert_eq!(dropins(&unit), [format!("{ETC}/other.service.d/a.conf"), format!("{ETC}/k.service.d/b.conf")]);
        // Measured: the fragment is read under the name that was asked for, the drop-ins under the id.
        assert_eq!(argv(&unit), ["/bin/x", name, "k.service"]);
    }
}

#[test]
fn fact_3a_links_of_the_same_name_and_dangling_ones() {
    let path = format!("{ETC}/k.service");
    let same = service("ExecStart=/bin/x").link(&path, format!("{USR}/k.service"));
    let unit = load(&same);
    assert_eq!(unit.fragment, Some(PathBuf::from(format!("{USR}/k.service"))));
    assert_eq!(unit.names, ["k.service"]);
    let dangling = service("ExecStart=/bin/x").link(&path, "/nowhere/k.service");
    assert_eq!(load(&dangling).load, LoadState::NotFound);
    let linked =
        MemoryTree::new().file("/opt/k.service", "[Service]\nExecStart=/bin/x %y %Y\n").link(&path, "/opt/k.service");
    let unit = load(&linked);
    assert_eq!(unit.fragment, Some(PathBuf::from(&path)));
    assert_eq!(argv(&unit), ["/bin/x", "/opt/k.service", "/opt"]);
}

#[test]
fn aliases_in_a_circle_lead_nowhere() {
    let tree =
        MemoryTree::new().link(format!("{ETC}/k.service"), "l.service").link(format!("{ETC}/l.service"), "k.service");
    assert_eq!(load(&tree).load, LoadState::NotFound);
}

/// The order was measured: `systemctl show -p DropInPaths a-b@x.service`.
#[test]
fn fact_5_templates_prefixes_and_types() {
    let mut tree = MemoryTree::new()
        .file(format!("{ETC}/a-b@.service"), "[Service]\nExecStart=/bin/x %i %I %j %n %N %p %f $WHO\n");
    for directory in ["a-.service", "a-@x.service", "a-@.service", "a-b@x.service", "service"] {
        tree = tree
            .file(format!("{ETC}/{directory}.d/{directory}.conf"), drop_in("A=1"))
            .file(format!("{ETC}/{directory}.d/same.conf"), drop_in(&format!("WHO={directory}")));
    }
    let unit = resolve_unit(&tree, "a-b@x.service", &Manager::default());
    assert_eq!(argv(&unit)[1..], ["x", "x", "b", "a-b@x.service", "a-b@x", "a-b", "/x", "a-b@x.service"]);
    assert_eq!(unit.dropins.len(), 6);
    assert!(matches!(resolve_unit(&tree, "a-b@.service", &Manager::default()).load, LoadState::Error { .. }));
}

#[test]
fn fact_5_a_name_without_a_dash_has_no_prefix() {
    let tree = service("ExecStart=/bin/x").file(format!("{ETC}/k-.service.d/a.conf"), drop_in("A=--x"));
    let unit = load(&tree);
    assert!(unit.dropins.is_empty());
    let prefix = |kind: &EventKind| *kind == EventKind::DropInNotRead { reason: NotADropIn::Prefix };
    assert!(has(&unit, "A=--x", prefix));
}

#[test]
fn fact_6_names_that_are_no_drop_ins_and_things_that_hide() {
    let directory = format!("{ETC}/k.service.d");
    let tree = service("ExecStart=/bin/x")
        .file(format!("{directory}/a.conf.bak"), drop_in("A=1"))
        .file(format!("{directory}/.a.conf"), drop_in("A=1"))
        .directory(format!("{directory}/f.conf"))
        .link(format!("{directory}/g.conf"), "/nowhere")
        .file(format!("{USR}/k.service.d/f.conf"), drop_in("F=1"))
        .file(format!("{USR}/k.service.d/g.conf"), drop_in("G=1"));
    let unit = load(&tree);
    assert_eq!(dropins(&unit), [format!("{directory}/f.conf"), format!("{directory}/g.conf")]);
    assert!(!unit.variables.contains_key("F") && !unit.variables.contains_key("G"));
    for what in ["directory", "dangling link"] {
        assert!(has(&unit, "=1", |kind| matches!(kind, EventKind::DropInMasked { what: w, .. } if *w == what)));
    }
    for reason in [NotADropIn::Suffix, NotADropIn::Hidden] {
        assert!(has(&unit, "A=1", |kind| *kind == EventKind::DropInNotRead { reason }));
    }
}

#[test]
fn fact_7_the_order_is_by_name_over_all_directories() {
    let mut tree = service("ExecStart=/bin/x");
    for (directory, name) in
        [(ETC, "9-a"), (USR, "10-b"), (ETC, "a"), (USR, "Z"), ("/run/systemd/system", "99-x"), (ETC, "override")]
    {
        tree = tree.file(format!("{directory}/k.service.d/{name}.conf"), drop_in("A=1"));
    }
    let unit = load(&tree);
    let names: Vec<_> = unit.dropins.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["10-b", "9-a", "99-x", "Z", "a", "override"]);
}

#[test]
fn fact_8_of_one_name_one_survives() {
    let name = "rke2-agent.service";
    let run = "/run/systemd/system";
    let tree = MemoryTree::new()
        .file(format!("{USR}/{name}"), UNIT)
        .file(format!("{ETC}/rke2-.service.d/10-x.conf"), drop_in("A=prefix"))
        .file(format!("{run}/{name}.d/10-x.conf"), drop_in("A=own"))
        .file(format!("{USR}/{name}.d/20-x.conf"), drop_in("B=own"))
        .file(format!("{ETC}/service.d/20-x.conf"), drop_in("B=type"));
    let unit = resolve_unit(&tree, name, &Manager::default());
    assert_eq!(unit.variables["A"].effective.value, "prefix");
    assert_eq!(unit.variables["B"].effective.value, "own");
    let shadowed = |kind: &EventKind| matches!(kind, EventKind::DropInShadowed { .. });
    assert!(has(&unit, "A=own", shadowed) && has(&unit, "B=type", shadowed));
}

#[test]
fn fact_9_a_mask_is_listed_and_hides() {
    let tree = service("ExecStart=/bin/x")
        .link(format!("{ETC}/k.service.d/a.conf"), "/dev/null")
        .file(format!("{USR}/k.service.d/a.conf"), drop_in("A=1"));
    let unit = load(&tree);
    assert_eq!(dropins(&unit), [format!("{ETC}/k.service.d/a.conf")]);
    let masked = |kind: &EventKind| matches!(kind, EventKind::DropInMasked { what: "link to /dev/null", .. });
    assert!(has(&unit, "A=1", masked));
}

#[test]
fn a_directory_that_is_a_link_is_named_by_its_target() {
    let tree = service("ExecStart=/bin/x")
        .link(format!("{ETC}/k.service.d"), "/opt/dropins")
        .file("/opt/dropins/a.conf", drop_in("A=1"));
    assert_eq!(dropins(&load(&tree)), ["/opt/dropins/a.conf"]);
}

#[test]
fn fact_11_dependencies_are_not_reset() {
    let tree = MemoryTree::new()
        .file(format!("{USR}/k.service"), "[Unit]\nAfter=a.service\n[Service]\nExecStart=/bin/x\n")
        .file(format!("{ETC}/k.service.d/a.conf"), "[Unit]\nAfter=\nAfter=b.service\n");
    let after = &load(&tree).settings[&("Unit".to_owned(), "After".to_owned())];
    assert_eq!(after.value, "a.service b.service");
}

/// Measured: a directory of the unit's name hides nothing; a link to a directory elsewhere is an error.
#[test]
fn directories_of_the_units_name() {
    let path = format!("{ETC}/k.service");
    assert_eq!(load(&service("ExecStart=/bin/x").directory(&path)).load, LoadState::Loaded);
    let linked = service("ExecStart=/bin/x").directory("/tmp").link(&path, "/tmp");
    assert!(matches!(load(&linked).load, LoadState::Error { .. }));
}
