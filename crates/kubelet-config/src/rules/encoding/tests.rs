use crate::kubelet::resolve::Inputs;
use crate::rules::tests::support::{external, fixed_files, found, kubeadm, lost};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

#[test]
fn a_byte_order_mark_costs_the_first_variable() {
    let tree = kubeadm().file(ENV, "\u{feff}KUBELET_EXTRA_ARGS=--cloud-provider=external\r\nB=1\r\n");
    assert_eq!(lost(&tree, external(), "SD025"), ["error /etc/default/kubelet:1 --cloud-provider=external"]);
    assert_eq!(
        fixed_files(&tree, &external(), "SD025"),
        [format!("{ENV}\nKUBELET_EXTRA_ARGS=--cloud-provider=external\r\nB=1\r\n")]
    );
    assert!(found(&tree, external(), "SD004").is_empty(), "said once");
    let harmless = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=\r\n");
    assert!(found(&harmless, external(), "SD025").is_empty());
}

#[test]
fn text_that_is_not_utf8_loses_the_rest_of_a_drop_in() {
    let tree = kubeadm().file(OWN, b"[Service]\nEnvironment=A=\xff\nEnvironment=\"X=--v=3\"\n".to_vec());
    let found = found(&tree, external(), "SD025");
    assert!(found[0].starts_with(&format!("error {OWN}:2")), "{found:?}");
}

#[test]
fn odd_characters_in_a_flag_are_named() {
    let odd = |value: &str| {
        let text = format!("KUBELET_EXTRA_ARGS=\"{value}\"\n");
        found(&kubeadm().file(ENV, text), Inputs::default(), "SD025")
    };
    for (value, plain) in
        [("--v=2\u{a0}--max-pods=5", "--v=2 --max-pods=5"), ("--node-labels=a=“b”", "--node-labels=a=b")]
    {
        assert_eq!(odd(value).len(), 1, "{value}");
        let tree = kubeadm().file(ENV, format!("KUBELET_EXTRA_ARGS=\"{value}\"\n"));
        let fixed = fixed_files(&tree, &Inputs::default(), "SD025");
        assert_eq!(fixed, [format!("{ENV}\nKUBELET_EXTRA_ARGS=\"{plain}\"\n")]);
    }
    assert!(odd("--node-labels=a=b --v=2").is_empty());
    assert!(odd("–v=2").is_empty(), "SD016 tells of words that are no flags");
}
