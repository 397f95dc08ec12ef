//! The stories, one file a topic.

mod agent;
mod api;
mod bootstrap;
mod bus;
mod checks;
mod cloud_init;
mod config;
mod consumers;
mod crash;
mod diagnose;
mod distributions;
mod documents;
mod firewall;
pub mod harness;
mod kernel;
mod lease;
mod life;
mod maintenance;
mod memory;
mod packages;
mod pause;
mod pods;
mod privilege;
mod profiles;
mod records;
mod rollout;
mod runtime;
mod samples;
mod secrets;
mod settings;
mod storage;
mod taints;
mod trust;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::scene::Scene;
use crate::support::kinds::Kind;

/// No story takes longer, if it does not say so.
const LIMIT: Duration = Duration::from_mins(7);

/// When a story runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Tier {
    /// With each change.
    Gate,
    /// By hand.
    Full,
}

/// The nodes that a story can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Anywhere,
    Namespaces,
    Guest,
}

/// Something that happens to a node, and what nodevigil must make of it.
#[derive(Debug)]
pub struct Story {
    pub name: &'static str,
    pub tier: Tier,
    pub place: Place,
    /// It may take this long, on a node in namespaces.
    pub limit: Duration,
    pub run: fn(&Scene) -> Result<()>,
}

impl Place {
    /// Where nodes of this kind are not.
    pub fn elsewhere(kind: &Kind) -> Self {
        if kind.suite.is_some() { Self::Namespaces } else { Self::Guest }
    }
}

impl Story {
    const fn only_in(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// What it waits for takes longer than other stories.
    const fn lasting(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

const fn gate(name: &'static str, run: fn(&Scene) -> Result<()>) -> Story {
    Story { name, tier: Tier::Gate, place: Place::Anywhere, limit: LIMIT, run }
}

const fn full(name: &'static str, run: fn(&Scene) -> Result<()>) -> Story {
    Story { name, tier: Tier::Full, place: Place::Anywhere, limit: LIMIT, run }
}

/// All stories, in the order in which they run.
pub const STORIES: &[Story] = &[
    full("harness::node_ends", harness::nothing_is_left_of_a_node).only_in(Place::Namespaces),
    full("harness::run_is_killed", harness::nothing_is_left_of_a_killed_run).only_in(Place::Namespaces),
    gate("life::virtual_machine", life::a_virtual_machine_shows_a_lost_flag_a_crash_and_a_stop).only_in(Place::Guest),
    gate("life::crash", life::a_crash_shows_signal_and_pid),
    gate("life::clean_exit", life::a_clean_exit_without_a_stop_job_is_a_crash),
    gate("life::hang", life::a_stopped_process_is_hung_until_it_continues),
    full("life::unkillable", life::a_kubelet_that_outlives_sigkill_is_unkillable),
    gate("life::operator_stop", life::a_stop_job_is_no_fault),
    gate("life::restart_by_systemd", life::a_crash_and_its_restart_are_one_problem),
    gate("life::planned_restart", life::a_restart_job_flips_nothing),
    gate("life::restart_by_signal", life::a_clean_end_that_systemd_restarts_flips_nothing_but_three_are_a_loop),
    full("life::several_units", life::of_several_units_the_one_that_is_used_is_watched),
    full("life::never_started", life::a_kubelet_that_systemd_never_starts_is_a_problem),
    full("life::not_to_start", life::a_kubelet_that_is_not_to_start_at_present_is_no_problem)
        .lasting(Duration::from_mins(10)),
    full("life::watchdog", life::a_kubelet_that_systemds_watchdog_ends_is_named_so),
    full("life::stopped_with_its_runtime", life::a_stop_of_the_runtime_is_a_stop_job_too),
    full("life::stopped_with_failed_runtime", life::a_kubelet_that_was_stopped_with_a_failed_runtime_is_a_problem),
    full(
        "life::stopped_with_ended_runtime",
        life::a_kubelet_that_was_stopped_with_a_runtime_that_ended_cleanly_is_a_problem,
    ),
    full("life::fails_before_its_process", life::a_unit_that_fails_before_its_process_is_a_problem),
    full("distributions::k0s", distributions::a_kubelet_that_k0s_has_started_is_watched_like_any_other)
        .only_in(Place::Namespaces),
    full("distributions::rke2", distributions::an_rke2_agent_is_watched_with_both_its_children)
        .only_in(Place::Namespaces),
    full("distributions::k3s", distributions::a_k3s_agent_is_watched_as_the_kubelet).only_in(Place::Namespaces),
    full("distributions::al2023", distributions::the_unit_of_al2023).only_in(Place::Namespaces),
    full("distributions::aks", distributions::the_unit_of_aks).only_in(Place::Namespaces),
    full("distributions::read_only_usr", distributions::a_read_only_usr).only_in(Place::Namespaces),
    gate("crash::loop", crash::a_flag_that_does_not_exist_is_a_crash_loop),
    gate("crash::start_limit", crash::the_start_limit_counts_as_a_crash_loop),
    gate("crash::out_of_memory", crash::an_oom_kill_shows_its_limit),
    gate("firewall::unreachable", firewall::a_firewall_on_healthz_is_a_warning),
    gate("firewall::crash", firewall::a_crash_behind_a_firewall_is_a_crash),
    gate("agent::restart_while_dead", agent::a_restart_keeps_a_crash),
    gate("agent::restart_while_stopped", agent::a_restart_keeps_a_stop),
    gate("agent::restart_while_well", agent::a_restart_keeps_health),
    gate("agent::restart_of_both", agent::a_restart_with_the_kubelet_flips_nothing),
    gate("agent::crash_meanwhile", agent::a_crash_while_the_agent_is_stopped_is_reported),
    gate("agent::stop_while_false", agent::a_stop_of_the_agent_withdraws_a_false),
    gate("agent::stop_while_true", agent::a_stop_of_the_agent_keeps_a_true),
    gate("agent::journal", agent::a_transition_has_fields_in_the_journal),
    full("agent::pod", agent::a_pod_waits_while_the_service_runs),
    full("agent::pod_ends", agent::a_pod_withdraws_if_its_daemonset_wants_no_other),
    full("agent::upgraded", agent::an_upgrade_changes_nothing),
    full("agent::shutdown", agent::a_shutdown_is_no_fault).only_in(Place::Namespaces),
    full("agent::sandbox", agent::systemd_finds_no_fault_with_the_unit),
    gate("api::node_recreated", api::a_new_node_inherits_nothing),
    gate("api::outage", api::a_crash_in_an_outage_is_reported_after_it),
    full("api::outage_with_recovery", api::a_recovery_in_an_outage_moves_the_transition_time),
    full("api::refused", api::a_refused_apply_is_a_trouble_until_it_is_allowed),
    full("api::late_write", api::a_request_that_is_carried_out_late_does_not_stay),
    full("api::wrong_clock", api::a_wrong_clock_moves_no_transition_time),
    gate("api::audit", api::an_audit_log_names_the_agent_and_its_node),
    full("api::foreign_overwrites", api::a_condition_that_another_manager_overwrites_is_left_to_it),
    full("api::credential_end", api::the_end_of_the_agents_credential_is_a_trouble_and_a_key_for_everyone_is_refused),
    full("api::refused_credential", api::a_credential_that_is_refused_is_tried_once_a_minute_and_another_one_at_once),
    full("api::core_events", api::events_are_written_in_the_core_group_where_the_other_is_refused),
    full("api::node_name", api::the_node_is_that_of_the_credential_and_not_of_the_hostname),
    gate("api::foreign_owner", api::a_condition_of_another_manager_is_left_alone),
    gate("bootstrap::ready", bootstrap::a_ready_node_is_bootstrapped),
    full("bootstrap::stuck", bootstrap::a_taint_that_is_not_removed_is_late_then_stuck),
    full("bootstrap::not_joined", bootstrap::a_host_that_cannot_join_shows_the_stage_and_the_cause),
    gate("bus::forged_signals", bus::forged_signals_change_nothing),
    gate("bus::crash_among_forged_signals", bus::a_crash_among_forged_signals_is_seen),
    gate("checks::unit", checks::a_unit_that_fails_is_a_problem_and_one_that_is_stopped_is_none),
    full("checks::command", checks::a_commands_exit_code_decides_and_maintenance_holds_it_back),
    full("checks::tainted", checks::a_check_taints_the_node_until_its_unit_is_back),
    full("checks::log", checks::lines_of_the_journal_and_the_kernel_count_for_their_time),
    full("checks::hostile", checks::a_hostile_command_costs_nothing_but_its_own_check),
    full("checks::refused", checks::a_type_that_the_policy_refuses_holds_no_other_condition_back),
    full("checks::examples", checks::the_examples_of_the_documents_work_as_they_stand).lasting(Duration::from_mins(15)),
    full("checks::beside_npd", checks::files_of_node_problem_detector_do_the_same_beside_it)
        .only_in(Place::Namespaces)
        .lasting(Duration::from_mins(15)),
    full("checks::reserved", checks::a_check_may_not_have_a_type_of_others),
    gate("certificate::expired", lease::an_expired_client_certificate_is_reported_until_it_is_renewed),
    full("lease::stalled", lease::a_stalled_connection_of_the_kubelet_alone_is_reported),
    full("lease::outage_for_both", lease::an_outage_for_kubelet_and_agent_is_no_fault),
    gate("kernel::forged_lines", kernel::forged_lines_change_nothing),
    full("kernel::trouble_logged", kernel::an_error_of_a_file_system_is_a_warning),
    full("kernel::limit", kernel::few_process_ids_left_are_a_warning),
    full("maintenance::left_stopped", maintenance::a_kubelet_that_an_upgrade_leaves_stopped_is_a_problem)
        .lasting(Duration::from_mins(16)),
    full("kernel::systemd_crashed", kernel::a_systemd_that_has_crashed_is_a_problem).only_in(Place::Guest),
    gate("kernel::connections", kernel::a_full_connection_table_is_a_warning).only_in(Place::Guest),
    full("kernel::systemd_in_state_d", kernel::a_systemd_that_waits_in_the_kernel_is_deadlocked),
    gate("storage::read_only", storage::a_mount_that_becomes_read_only_is_a_problem_until_it_is_writable),
    full("storage::ext4_error", storage::a_file_system_that_the_kernel_makes_read_only_is_a_problem),
    full("storage::io_error", storage::a_file_system_that_fails_is_a_problem),
    full("storage::full", storage::a_full_file_system_is_a_problem_until_there_is_space),
    full("storage::hung", storage::a_disk_that_completes_nothing_is_a_problem_and_a_frozen_file_system_is_none),
    full("storage::sync_loop", storage::a_sync_loop_that_waits_for_a_disk_is_a_hang_although_the_kubelet_answers)
        .lasting(Duration::from_mins(12)),
    gate("storage::disk_fails", storage::a_disk_that_fails_every_request_is_a_problem).only_in(Place::Guest),
    gate("storage::disk_hangs", storage::a_disk_that_hangs_is_a_problem_and_hangs_tasks).only_in(Place::Guest),
    full("memory::runs_out", memory::memory_that_runs_out_is_reported_before_it_is_used_up).only_in(Place::Namespaces),
    full("memory::cgroup_limit", memory::a_cgroup_at_its_own_limit_is_not_the_host),
    full("memory::host_thrashes", memory::a_host_that_thrashes_is_reported_until_it_has_memory_again)
        .only_in(Place::Namespaces),
    gate("config::flag_in_the_wrong_file", config::a_flag_in_the_wrong_file_is_found),
    full(
        "config::changed_after_start",
        config::a_file_that_was_changed_after_the_start_is_compared_with_the_running_kubelet,
    ),
    full("config::error_until_corrected", config::an_error_is_shown_until_the_file_is_corrected),
    full("config::preflight", config::the_check_prints_before_the_kubelet_starts),
    full("pause::lifts_a_problem", pause::a_pause_lifts_a_problem_until_it_ends),
    gate("runtime::crash", runtime::a_crash_shows_signal_and_pid),
    full("runtime::crash_loop", runtime::three_ends_within_five_minutes_are_a_crash_loop),
    gate("runtime::restart", runtime::a_restart_flips_nothing_and_a_stop_is_no_fault),
    gate("runtime::restart_by_signal", runtime::a_clean_end_that_systemd_restarts_flips_nothing),
    full("runtime::hang", runtime::a_stopped_process_is_hung_until_it_continues),
    full("runtime::out_of_memory", runtime::an_oom_kill_shows_its_limit),
    full("runtime::not_ready", runtime::a_runtime_without_cri_is_not_ready_when_the_kubelet_reports_so),
    full("runtime::another_of_its_name", runtime::another_program_of_that_name_changes_nothing),
    full("pause::annotation", pause::an_annotation_pauses_until_it_is_removed),
    gate("maintenance::drain_like", maintenance::a_crash_during_maintenance_is_reported_after_it),
    full("maintenance::drain", maintenance::a_drain_counts_from_its_own_time_and_ends_with_the_cordon),
    full("maintenance::package_upgrade", maintenance::a_crash_during_a_package_upgrade_is_reported_after_it),
    gate("records::crash", records::of_a_crash_has_the_last_error_and_the_state_of_the_host),
    full("records::watchdog", records::of_a_kubelet_that_the_watchdog_ends_name_the_call_that_it_waits_for),
    full("records::out_of_memory", records::of_an_oom_kill_has_the_kernels_lines),
    full("records::read_only", records::stay_in_memory_while_the_disk_is_read_only),
    full("records::disk_hangs", records::stay_in_memory_while_the_disk_hangs).only_in(Place::Guest),
    full("records::upload", records::are_uploaded_until_the_server_takes_them),
    full("records::last_boot", records::of_the_last_boot_are_named_with_its_panic),
    full("records::hard_reboot", records::outlive_a_reset).only_in(Place::Guest),
    full("records::panic", records::outlive_a_panic_which_is_quoted).only_in(Place::Guest),
    gate("taints::crash", taints::a_crash_taints_until_the_kubelet_is_back),
    full("taints::kept", taints::a_taint_is_set_again_and_goes_with_a_pause_and_a_stop),
    full("taints::kubelets_identity", taints::with_the_kubelets_identity_taints_are_a_trouble),
    full("taints::cleanup", taints::cleanup_leaves_nothing_of_ours),
    full("taints::cleanup_all", taints::cleanup_of_all_nodes_does_what_is_left),
    full("profiles::npd_and_eks", profiles::conditions_have_the_names_of_the_profile_beside_their_own),
    full("profiles::only", profiles::a_profile_in_place_of_the_native_names_keeps_its_times_through_a_restart),
    full("settings::refused", settings::refused_settings_leave_the_last_accepted_ones_in_use),
    full("settings::dry_run", settings::a_dry_run_reads_everything_and_writes_nothing),
    full("settings::never_accepted", settings::without_accepted_settings_the_exit_code_is_78),
    full("privilege::certificate", privilege::a_stolen_certificate_is_worth_its_own_node),
    full("privilege::token", privilege::a_stolen_token_is_worth_its_own_node),
    full("privilege::many_managers", privilege::taints_can_be_set_and_removed_whatever_the_number_of_field_managers),
    full("privilege::wide_role", privilege::the_policies_hold_whatever_the_role),
    full("privilege::no_node_name", privilege::an_identity_that_names_no_node_can_write_nothing),
    full("secrets::kubelet", secrets::of_the_kubelet_stay_on_the_node),
    full("secrets::agent", secrets::of_the_agent_stay_on_the_node),
    full(
        "consumers::karpenter_replaces",
        consumers::karpenter_replaces_a_node_by_reason_unless_veto_or_budget_forbids_it,
    ),
    full("consumers::karpenter_reboots", consumers::a_reboot_by_karpenter_keeps_condition_and_taint),
    full("consumers::cluster_api", consumers::cluster_api_remediates_a_machine_after_its_timeout),
    full("trust::processes", trust::other_processes_are_no_fault),
    full("trust::planned_work", trust::planned_work_is_no_fault),
    full("trust::load", trust::load_is_no_fault),
    full("trust::network", trust::what_the_network_does_is_no_fault),
    full("trust::agent_restarts_processes", trust::other_processes_and_restarts_of_the_agent_are_no_fault),
    full("trust::agent_restarts_planned_work", trust::planned_work_and_restarts_of_the_agent_are_no_fault),
    full("trust::agent_restarts_load", trust::load_and_restarts_of_the_agent_are_no_fault),
    full("trust::agent_restarts_network", trust::what_the_network_does_and_restarts_of_the_agent_are_no_fault),
    full("trust::reboot", trust::a_reboot_is_no_fault).only_in(Place::Namespaces),
    gate("trust::hard_reboot", trust::a_hard_reboot_is_no_fault).only_in(Place::Guest),
    gate("trust::virtual_machine", trust::what_happens_to_a_virtual_machine_is_no_fault).only_in(Place::Guest),
    full("samples::applied", samples::an_api_server_takes_each_sample).only_in(Place::Namespaces),
    full("packages::deb", packages::a_deb_is_installed_upgraded_and_purged).only_in(Place::Namespaces),
    full("packages::rpm", packages::an_rpm_is_installed_upgraded_and_removed).only_in(Place::Namespaces),
    full("rollout::three_nodes", rollout::the_page_takes_three_nodes_from_a_dry_run_to_publishing_and_back)
        .only_in(Place::Namespaces)
        .lasting(Duration::from_mins(15)),
    full("rollout::ansible", rollout::a_playbook_stops_at_the_first_node_with_a_problem)
        .only_in(Place::Namespaces)
        .lasting(Duration::from_mins(15)),
    full("rollout::image", rollout::a_node_of_an_image_checks_before_the_kubelet_starts).only_in(Place::Namespaces),
    full("rollout::kubeadm_join", rollout::a_host_that_joins_by_kubeadm_is_checked_when_its_files_are_written)
        .only_in(Place::Namespaces),
    full("rollout::upgrade", rollout::an_upgrade_and_a_downgrade_keep_conditions_and_settings)
        .only_in(Place::Namespaces),
    full("cloud_init::join", cloud_init::a_host_joins_by_its_user_data).only_in(Place::Namespaces),
    full("cloud_init::external_cloud", cloud_init::a_host_with_an_external_cloud_waits_for_its_controller)
        .only_in(Place::Namespaces),
    full("cloud_init::image", cloud_init::an_image_is_baked_with_the_preflight_alone).only_in(Place::Namespaces),
    full("pods::outlives_kubelet", pods::a_pod_outlives_kubelet_and_runtime),
    full("pods::replaced", pods::a_pod_is_replaced_and_removed),
    full("pods::manifest", pods::a_manifest_is_applied_and_removed),
    full("documents::commands", documents::each_block_of_commands_runs).only_in(Place::Namespaces),
    full("diagnose::dead_kubelet", diagnose::a_dead_kubelet_is_named),
    full("diagnose::hung_runtime", diagnose::a_hung_container_runtime_is_named),
    full("diagnose::hung_bus", diagnose::a_bus_that_does_not_answer_is_named),
];

/// The stories of a tier that can run on nodes of this kind and whose name contains one of the filters; without filters all.
pub fn select(kind: &Kind, tier: Tier, filters: &[String]) -> Vec<&'static Story> {
    let elsewhere = Place::elsewhere(kind);
    let is_wanted = |story: &Story| filters.is_empty() || filters.iter().any(|filter| story.name.contains(filter));
    STORIES.iter().filter(|story| story.tier <= tier && story.place != elsewhere && is_wanted(story)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_story_has_a_name_of_its_own_that_can_name_a_node() {
        let nodes: BTreeSet<String> = STORIES.iter().map(|story| crate::scene::node_name(story.name)).collect();
        assert_eq!(nodes.len(), STORIES.len());
        for name in nodes {
            let is_label =
                name.len() < 50 && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            assert!(is_label, "{name}");
        }
    }

    #[test]
    fn the_full_tier_runs_the_gate_too_and_filters_choose_by_part_of_the_name() {
        let select = |kind, tier, filters: &[String]| select(Kind::find(kind).unwrap(), tier, filters);
        let everywhere = STORIES.iter().filter(|story| story.place == Place::Anywhere).count();
        let [namespaces, guest] =
            ["namespaces", "debian-13"].map(|kind| select(kind, Tier::Full, &[]).len() - everywhere);
        assert_eq!(everywhere + namespaces + guest, STORIES.len());
        assert!(namespaces > 0 && guest > 0);
        assert!(select("namespaces", Tier::Gate, &[]).iter().all(|story| story.tier == Tier::Gate));
        let crash = select("debian-13", Tier::Gate, &["life::crash".into()]);
        assert_eq!(crash.iter().map(|story| story.name).collect::<Vec<_>>(), ["life::crash"]);
    }
}
