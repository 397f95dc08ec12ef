//! The user data of `cloud-init/`: each file booted as it stands by the real cloud-init, with the real package, and its
//! twins with the mistake that started this project.

pub(crate) mod birth;
mod image;
mod k3s;
pub(crate) mod kubeadm;
pub(crate) mod mirror;
mod schema;

use libtest_mimic::Trial;

use crate::trial;

/// Every file that is run here.
const FILES: &[(&str, &str)] = &[
    ("kubeadm-external-cloud.yaml", kubeadm::EXTERNAL_CLOUD),
    ("kubeadm-join.yaml", kubeadm::JOIN),
    ("image-bake.yaml", image::BAKE),
    ("k3s-agent.yaml", k3s::AGENT),
];

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    let lost = kubeadm::LOST.iter().map(|lost| {
        let name = format!("cloud_init::lost_{}", lost.name);
        trial(&name, move || kubeadm::the_mistake_is_named(lost))
    });
    let mut tests = vec![
        trial("cloud_init::schema", schema::every_file_is_allowed_and_run),
        trial(
            "cloud_init::kubeadm_external_cloud",
            kubeadm::a_node_of_an_external_cloud,
        ),
        trial("cloud_init::kubeadm_join", kubeadm::a_node_that_joins),
        trial(
            "cloud_init::no_package",
            kubeadm::a_node_joins_without_the_package,
        ),
        trial("cloud_init::image_bake", image::a_node_is_born_from_it),
        trial("cloud_init::image_refused", image::a_bad_image_is_refused),
        trial("cloud_init::k3s_agent", k3s::a_node_of_k3s),
        trial(
            "cloud_init::k3s_list_replaced",
            k3s::a_replaced_list_is_named,
        ),
        trial("cloud_init::gate", kubeadm::a_gate_keeps_the_kubelet_down),
    ];
    tests.extend(lost);
    tests
}
