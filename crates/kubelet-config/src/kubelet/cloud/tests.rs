use super::*;
use crate::kubelet::tree::MemoryTree;

/// In the form in which cloud-init writes them (`persist_instance_data` of 24.1; for Hetzner compared with what
/// hetznercloud/cli#511 shows), with invented names and ids.
const HETZNER: &str = include_str!("hetzner.json");
const AWS: &str = include_str!("aws.json");

fn with(text: impl Into<Vec<u8>>) -> MemoryTree {
    MemoryTree::new().file(PATH, text)
}

#[test]
fn the_names_and_ids_are_those_of_the_clouds_controllers() {
    let of = |text: &str| {
        let cloud = read(&with(text)).unwrap();
        (cloud.provider_id().unwrap(), cloud.name.unwrap())
    };
    assert_eq!(of(HETZNER), ("hcloud://47110815".into(), "pool1-4f2a".into()));
    let name = "ip-10-0-31-17.eu-central-1.compute.internal";
    assert_eq!(of(AWS), ("aws:///eu-central-1a/i-0c0ffee0123456789".into(), name.into()));
    let domain = HETZNER.replace("\"local-hostname\": \"pool1-4f2a\"", "\"local-hostname\": \"Pool1.example.com\"");
    assert_eq!(of(&domain).1, "pool1.example.com", "v1 has no domain");
}

#[test]
fn a_file_of_another_instance_counts_for_nothing() {
    let after = |id: &str| read(&with(HETZNER).file(INSTANCE_ID, format!("{id}\n")));
    assert!(after("47110815").is_ok());
    assert!(after("47110816").unwrap_err().contains("another id"), "an image of another server");
}

#[test]
fn what_is_not_there_cut_off_too_large_or_of_another_cloud_is_named_and_nothing_is_quoted() {
    let of = |tree: MemoryTree| read(&tree).unwrap_err();
    assert!(of(MemoryTree::new()).contains("no /run/cloud-init/instance-data.json"));
    for end in (0..HETZNER.len()).step_by(97) {
        assert!(of(with(&HETZNER[..end])).contains("cut off"), "{end}");
    }
    assert!(of(with(format!("{HETZNER}{}", " ".repeat(MAX_BYTES)))).contains("larger than 1 MiB"));
    assert!(of(with("[".repeat(100_000))).contains("cut off"));
    assert!(of(MemoryTree::new().other(PATH)).contains("cannot be read"));
    assert!(of(with(HETZNER.replace("\"hetzner\"", "\"nocloud\""))).contains("other than AWS and Hetzner"));
    let odd = read(&with(HETZNER.replace("47110815\"", "4 7\"").replace("pool1", "po ol"))).unwrap();
    assert_eq!((odd.instance_id, odd.name), (None, None));
}
