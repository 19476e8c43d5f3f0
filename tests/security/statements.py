"""What must be true of a decision, statement by statement, and the tests that show it.

C-…: of the checklist for reviewing and approving, those that a first release must meet; F…: cases that broke others.
Each has its words in short and the tests, a line a file: `file: test test …`, without the folder `tests/` and the
word `test_`. `tests/architecture/test_statements.py` holds the table to what is there.
"""

from typing import NamedTuple


class Statement(NamedTuple):
    says: str
    proven: str

    def tests(self) -> list[str]:
        """As `tests/api/test_keys.py::test_revoked`."""
        found = []
        for line in self.proven.split("\n"):
            file, _, names = line.strip().partition(": ")
            found += [f"tests/{file}.py::test_{name}" for name in names.split()]
        return found


VIEWS = "approvals/test_views"
DECISIONS = "approvals/test_decisions"

# -- Requests that decide -----------------------------------------------------------------------
DECIDING = {
    "C-01": Statement(
        "GET, HEAD and OPTIONS of every address change nothing and send nothing",
        f"""{VIEWS}: reading_changes_nothing_and_rings_nobody head_is_answered_like_get
        runs/test_admin: looking_changes_nothing
        api/test_read: reading_changes_nothing""",
    ),
    "C-02": Statement(
        "without a signed-in session no request decides, whatever it carries",
        f"""{VIEWS}: form_without_a_session_does_nothing_and_keeps_what_was_typed decide_never_trusts_the_query
        browser/test_mail_scanner: addresses_fetched_without_a_session
        security/test_doors_of_operators: sessions_open_no_door_of_the_api
        api/test_keys: submit_without_a_key_writes_nothing""",
    ),
    "C-03": Statement(
        "a browser without a session that runs all scripts and presses every button changes and learns nothing",
        "browser/test_mail_scanner: scanner_that_runs_scripts_and_presses_every_button",
    ),
    "C-04": Statement(
        "a decision without its token, or from another site, is 403",
        f"""{VIEWS}: form_without_its_token_is_403 form_from_another_origin_is_403_with_its_token_too
        security/test_edge: form_that_comes_from_another_site_is_refused_with_its_token_too
        security/test_doors_of_operators: posts_from_elsewhere_are_refused""",
    ),
    "C-05": Statement(
        "without view_digest 428; with that of something else, 409",
        f"""{VIEWS}: decide_without_a_digest_is_428 decide_with_an_old_digest_is_409_and_shows_then_and_now
        {DECISIONS}: decide_without_a_digest_is_refused approve_with_the_digest_of_another_request_is_stale
        approvals/test_digests: digest_changes_with_what_is_shown two_requests_of_equal_calls_have_two_digests""",
    ),
    "C-06": Statement(
        "nothing of a decision is taken from the client beyond the listed fields; others are 422",
        f"""{VIEWS}: decide_that_does_not_fit_is_422_and_changes_nothing answer_with_a_field_of_no_form_is_422
        approvals/test_stepping: fields_beyond_the_list_are_refused
        security/test_edge: field_sent_twice_decides_nothing""",
    ),
    "C-07": Statement(
        "one form_nonce is one decision and one receipt; another with the same verb the first answer, else 409",
        f"""{DECISIONS}: approve_again_gives_the_first_answer decide_again_with_another_verb_is_refused
        {VIEWS}: decide_again_leads_to_the_same_receipt
        races/test_decisions: one_form_sent_twice_at_once_is_one_decision""",
    ),
    "C-08": Statement(
        "50 approvals at once of a quorum of one: one permit",
        "races/test_decisions: fifty_approve_at_once_and_one_permit_comes_of_it",
    ),
    "C-09": Statement(
        "only before decide_by by the database's clock; a microsecond late is refused",
        f"""{DECISIONS}: decide_one_microsecond_late_is_refused decide_a_moment_before_the_end_counts
        races/test_decisions: approve_that_waited_past_the_end_is_refused
        crashes/test_clocks: workers_and_sweepers_five_minutes_apart""",
    ),
    "C-10": Statement(
        "expiry can't approve",
        f"""approvals/test_policies: a_rule_has_no_field_by_which_expiry_could_approve
        approvals/test_requests: expire_names_nobody_and_is_not_a_rejection
        {DECISIONS}: decide_after_the_sweeper_expired_it_is_refused
        races/pairs/test_decisions: expire_before_approve""",
    ),
}

# -- Who may decide -----------------------------------------------------------------------------
WHO = {
    "C-14": Statement(
        "eligibility at page, decision, quorum and effect; a role that was lost voids the decision",
        f"""{VIEWS}: role_lost_with_the_page_open_is_the_same_page
        {DECISIONS}: decide_after_the_role_was_lost_is_not_visible role_lost_in_the_window_voids_the_decision
        {DECISIONS}: approve_after_the_first_lost_the_role_does_not_complete_the_quorum
        approvals/test_reviewers: fresh_reads_groups_again
        races/test_decisions: role_taken_away_first_and_the_decision_is_not_visible""",
    ),
    "C-15": Statement(
        "whom the agent acts for, its owner and the maker of its key can't approve",
        f"""{DECISIONS}: decide_by_whom_the_run_acts_for_is_refused decide_by_the_owner_of_the_key_is_refused
        {DECISIONS}: decide_by_the_agents_owner_is_refused
        security/test_requester: whom_the_run_acts_for_is_known_by_any_of_their_names who_issued_the_key_is_a_requester
        approvals/test_chains: owner_of_each_agent_of_the_chain_is_a_requester issuer_of_the_roots_key_is_a_requester""",
    ),
    "C-16": Statement(
        "what one may not see and what there is not have one status and body",
        f"""{VIEWS}: unknown_and_foreign_are_one_page
        {DECISIONS}: decide_foreign_is_not_visible
        browser/test_sessions: somebody_elses_request_is_the_same_page_as_none
        api/test_bad_input: foreign_run_answers_as_an_unknown_one""",
    ),
    "C-17": Statement(
        "being a superuser or staff makes nobody a reviewer",
        f"""{VIEWS}: superuser_without_a_group_sees_nothing
        approvals/test_reviewers: eligibility_of_each disabled_superuser_and_disabled_member_see_nothing""",
    ),
    "C-18": Statement(
        "one person, one decision; a delegate's counts once",
        f"""{DECISIONS}: approve_twice_by_one_person_counts_once
        approvals/test_desk: delegate_only_to_who_may_decide_and_never_back
        approvals/test_desk: delegate_after_deciding_or_to_who_has_decided_is_refused
        approvals/test_accounts: invite_refuses_an_address_that_is_taken_or_none""",
    ),
    "C-19": Statement(
        "who edited counts once and never completes the quorum alone at R3 and above",
        f"""approvals/test_editing: author_at_r3_cannot_approve_but_can_reject
        approvals/test_editing: author_at_r3_cannot_get_round_it_by_editing_again
        approvals/test_editing: two_who_edit_each_others_version_never_approve_their_own
        {DECISIONS}: edit_by_one_of_two_counts_once_and_tells_the_other
        approvals/test_reviewers: author_counts_from_r3_on""",
    ),
    "C-20": Statement(
        "a policy that gets looser changes nothing for what waits",
        """approvals/test_authority: policy_that_got_looser_while_it_waits_changes_nothing
        approvals/test_policies: stricter_keeps_reviewers_of_the_older_version stricter_asks_for_all_that_either_asks
        approvals/test_admin: rules_are_changed_by_policy_editors_only""",
    ),
    "C-23": Statement(
        "no control is offered that would be refused, and it is refused anyway",
        f"""{VIEWS}: requester_sees_no_control_and_is_403 decide_by_who_may_only_see_is_403
        browser/test_sessions: auditor_sees_and_is_offered_nothing""",
    ),
}

# -- Sign-in, sessions, step-up -----------------------------------------------------------------
SIGNING_IN = {
    "C-27": Statement(
        "how old a step-up may be is checked on the server when deciding",
        """approvals/test_tiers: step_up_lasts_ten_minutes no_session_matches_no_step_up
        approvals/test_tiers: refused_decision_does_not_use_up_the_step_up""",
    ),
    "C-28": Statement(
        "a step-up for one item, digest and decision is refused for any other and a second time",
        """approvals/test_tiers: step_up_for_anything_else_is_none step_up_for_another_request_is_none
        approvals/test_tiers: step_up_is_used_once
        approvals/test_stepping: step_up_in_another_session_does_not_count_here code_counts_once
        approvals/test_leftovers: what_is_counted_is_counted_by_all_processes_together""",
    ),
    "C-30": Statement(
        "cookies: __Host- and Secure under https, HttpOnly, SameSite; another session id after sign-in",
        """config/test_settings: https_hardens_cookies_and_transport
        security/test_accounts: sign_in_makes_a_session_of_its_own
        security/test_every_answer: cookies_are_for_this_site_and_no_script""",
    ),
    "C-31": Statement(
        "disabling somebody ends their sessions and voids what is not yet in force",
        f"""{DECISIONS}: disabled_in_the_window_voids_the_decision decide_by_a_disabled_person_is_not_visible
        {VIEWS}: disabled_person_has_no_session
        approvals/test_admin: disabled_person_is_signed_out_everywhere_and_comes_back_without_sessions""",
    ),
}

# -- What is shown equals what runs -------------------------------------------------------------
SHOWN = {
    "C-35": Statement(
        "the bytes stored, hashed and sent are the same",
        """approvals/test_authority: bytes_kept_hashed_and_sent_are_the_same
        approvals/test_authority: arguments_of_the_revision_changed_in_the_database_run_nothing
        runs/test_values: parse_of_canonical_is_the_value digest_is_the_same_in_any_order_of_keys""",
    ),
    "C-36": Statement(
        "duplicate keys, NaN, bad UTF-8, half surrogates, depth over 32, too large: refused at the door, with the reason",
        """api/test_bad_input: duplicate_keys number_too_large not_utf8 lone_surrogate nesting_deeper_than_32
        api/test_bad_input: oversized_body nul nesting_bomb
        runs/test_values: parse_refuses parse_refuses_what_is_not_utf8 parse_refuses_what_is_too_large""",
    ),
    "C-37": Statement(
        "before the call facts, eligibility, state, time and digest are looked at again",
        f"""approvals/test_looks: drift_right_before_the_call_reopens_and_runs_nothing
        approvals/test_authority: permit_that_lapsed_reopens policy_that_denies_now_ends_the_call
        approvals/test_authority: tool_that_changed_since_the_approval_is_asked_again
        approvals/test_authority: facts_changed_in_the_database_run_nothing
        {DECISIONS}: cancel_in_the_window_ends_it""",
    ),
    "C-38": Statement(
        "a permit is used once, by its own run, after its window, before its end",
        f"""approvals/test_authority: permit_is_used_once permit_that_lapsed_reopens
        approvals/test_authority: permit_a_moment_before_its_end_is_used
        {DECISIONS}: approve_with_a_window_takes_effect_after_it decide_one_of_two_pending_moves_only_that_one
        races/test_decisions: approve_while_another_worker_has_the_run_uses_the_permit_once""",
    ),
    "C-40": Statement(
        "a revision, edit, changed fact, tier or stricter policy voids; an equal look or more time does not",
        """approvals/test_looks: change_voids_the_first_of_two_approvals look_that_sees_the_same_voids_nothing
        approvals/test_editing: approve_the_old_version_after_an_edit_is_stale
        approvals/test_authority: policy_that_asks_a_higher_tier_reopens policy_that_asks_more_people_reopens
        approvals/test_authority: policy_that_asks_no_more_changes_nothing
        approvals/test_desk: more_time_moves_deadline_and_hold_and_keeps_what_was_decided
        approvals/test_digests: digest_stays_with_what_moves_by_itself more_time_keeps_the_digest""",
    ),
    "C-41": Statement(
        "undo in its window makes the permit unusable; against its use exactly one of the two",
        """approvals/test_undo: undo_in_time_opens_it_again_with_its_deadline undo_too_late_says_since_when
        races/pairs/test_undo: undo_before_effect effect_before_undo undo_against_effect undo_before_undo
        browser/test_undo: undo_too_late_says_so_and_leads_to_the_run""",
    ),
    "C-44": Statement(
        "a tool that is not known is shown raw, at R3 or above, and never summed up",
        f"""{VIEWS}: request_of_a_tool_that_is_gone_is_shown_raw
        approvals/test_authority: tool_without_a_consequence_is_at_least_r3
        approvals/test_policies: judge_holds_an_unknown_tool_whatever_a_rule_allows
        approvals/test_shown: headline_of_an_unknown_tool_is_its_name_alone""",
    ),
    "C-45": Statement(
        "no field of the agent's, edit or missing fact lowers the tier",
        """approvals/test_editing: edit_never_lowers_the_tier
        approvals/test_policies: judge_raises_the_tier_and_holds_when_a_tier_rule_fails
        approvals/test_policies: judge_puts_an_effect_without_a_consequence_at_r3 no_rule_that_fails_leads_to_allow""",
    ),
}

# -- Hostile text -------------------------------------------------------------------------------
HOSTILE = {
    "C-47": Statement(
        "nothing is marked safe in templates or code",
        """approvals/test_templates: template_source_marks_nothing_safe_and_has_nothing_inline
        architecture/test_markup: code_marks_nothing_safe markup_of_code_is_made_of_constants
        approvals/test_templates: page_hostile_text_stays_text""",
    ),
    "C-48": Statement(
        "markup in any text is text on every page, in mail and admin",
        f"""{VIEWS}: hostile_text_is_text_on_every_page
        approvals/test_templates: page_hostile_text_stays_text page_shows_all_of_the_hostile_text_it_was_given
        runs/test_admin: hostile_text_stays_text
        approvals/test_notifications: mail_holds_nothing_of_the_agents
        security/test_hostile_bundles: texts_of_a_bundle_are_shown_revealed""",
    ),
    "C-49": Statement(
        "hidden characters are marks with their code points, everywhere",
        f"""{VIEWS}: hidden_characters_are_marks_on_every_page
        approvals/test_reveal: reveal_hidden_characters_become_chips reveal_leaves_no_hidden_character_without_a_chip
        approvals/test_reveal: reveal_characters_at_their_work_are_counted_without_alarm
        approvals/test_admin: hidden_characters_are_shown_as_chips
        security/test_hostile_names: names_are_words_and_what_is_hidden_in_them_is_shown
        security/test_doors_of_operators: texts_of_others_are_shown_revealed""",
    ),
    "C-50": Statement(
        "identifiers that are not ASCII or of mixed scripts raise a flag and show their escaped form",
        """approvals/test_reveal: flags_say_what_was_noticed
        approvals/test_pages: flags_say_what_is_odd_about_a_text""",
    ),
    "C-51": Statement(
        "padding moves nothing out of sight; a chip says how much",
        f"""{VIEWS}: long_and_padded_arguments_are_whole_on_the_page
        approvals/test_reveal: reveal_padding_becomes_one_chip_with_its_count""",
    ),
    "C-52": Statement(
        "nothing is cut without saying how much; shown and hidden add up",
        f"""{VIEWS}: long_and_padded_arguments_are_whole_on_the_page
        approvals/test_inbox: counts_are_exact_and_what_is_not_on_the_page_is_counted
        approvals/test_templates: value_tree_long_list_counts_what_stands_open_and_has_all_inside
        approvals/test_templates: value_tree_long_text_is_whole_and_measured
        security/test_long_texts: tree_holds_all_of_a_value_too_long_for_it run_page_shows_so_much_and_leads_to_the_rest
        approvals/test_shown: headline_cuts_a_long_text_with_its_count
        approvals/test_pages: flags_that_are_too_many_are_counted
        approvals/test_pages: steps_are_those_that_lead_to_this_one_and_the_others_are_counted""",
    ),
}

# -- The browser --------------------------------------------------------------------------------
BROWSER = {
    "C-60": Statement(
        "the content security policy on every answer; nothing inline",
        f"""security/test_every_answer: policy_is_on_every_answer
        {VIEWS}: every_answer_has_its_headers
        config/test_health: headers_of_every_answer
        browser/test_looks: headers_that_keep_pages_private
        approvals/test_templates: page_has_nothing_inline page_loads_only_its_own
        runs/test_admin: dashboard_of_the_queue_is_the_operators_and_the_one_exception""",
    ),
    "C-61": Statement(
        "htmx: no eval, no script tags, this site only, nothing kept; agents' text is not processed",
        """approvals/test_templates: base_configures_htmx_as_the_pages_need
        approvals/test_templates: page_hostile_text_stays_text revealed_draws_chips_and_adds_no_space""",
    ),
    "C-62": Statement(
        "htmx lies here and is of the major version it is written for; each form has its token",
        "approvals/test_templates: base_loads_the_vendored_htmx_2 page_every_post_form_carries_its_token",
    ),
    "C-63": Statement(
        "pages with data are kept nowhere; going back after signing out shows nothing",
        """security/test_edge: every_page_is_kept_by_nobody
        browser/test_sessions: back_after_signing_out_shows_nothing
        api/test_read: no_answer_is_kept_on_the_way""",
    ),
    "C-64": Statement(
        "referrer policy, nosniff, HSTS, COOP",
        f"""security/test_every_answer: policy_is_on_every_answer
        {VIEWS}: every_answer_has_its_headers
        config/test_settings: https_hardens_cookies_and_transport""",
    ),
    "C-65": Statement(
        "no data of an action in the browser's stores, queries or titles",
        f"""{VIEWS}: page_titles_hold_nothing_of_the_agents
        approvals/test_templates: page_title_carries_no_text_from_outside static_files_name_no_outside_address
        browser/test_sessions: back_and_forward_after_deciding""",
    ),
}

# -- Notices ------------------------------------------------------------------------------------
NOTICES = {
    "C-68": Statement(
        "minimal mails hold no value, name, amount or text of the agent's",
        """approvals/test_notifications: mail_holds_no_value_name_or_label mail_holds_nothing_of_the_agents
        approvals/test_templates: mail_minimal_has_no_word_from_outside
        browser/test_mail_scanner: mail_holds_nothing_of_the_action""",
    ),
    "C-69": Statement(
        "links carry no credential",
        """approvals/test_notifications: mail_has_one_address_and_it_carries_no_key
        browser/test_mail_scanner: forwarded_link""",
    ),
}

# -- Journal and operations ---------------------------------------------------------------------
JOURNAL = {
    "C-73": Statement(
        "every attempt, also a refused one, is in the journal, with session, address, door and digest",
        f"""{DECISIONS}: approve_keeps_who_what_when_and_through_which_door
        {DECISIONS}: decide_after_somebody_else_says_who_what_and_when
        security/test_doors_of_operators: refusal_of_an_ended_run_is_journalled_at_each_door
        security/test_doors_of_operators: auditor_at_the_admins_verbs_is_refused_and_journalled
        security/test_self_approval: own_decision_is_403_and_in_the_journal
        approvals/test_policies: publish_freezes_the_rules_and_journals_who_did_it
        approvals/test_requests: open_journals_what_was_opened revise_is_journalled_with_what_changed
        security/test_origin: decision_and_undo_say_from_where refusal_says_from_where too_many_tries_are_journalled
        security/test_origin: sections_and_step_up_are_journalled verbs_beside_the_decision_say_from_where
        security/test_origin: passing_on_says_from_where_also_refused several_at_once_say_from_where
        security/test_origin: address_is_what_the_trusted_proxy_tells origin_is_on_no_page_of_the_run""",
    ),
    "C-74": Statement(
        "the database refuses to change or delete journal and decisions",
        f"""security/test_journal: history_is_not_rewritten_by_statements
        {DECISIONS}: decisions_are_never_changed_or_deleted
        runs/test_journal: history_refuses history_refuses_truncate_where_it_is_asked_to""",
    ),
    "C-75": Statement(
        "verify_journal names the first entry that was changed, removed or moved",
        """runs/test_commands: verify_journal_finds_an_entry_changed_removed_or_moved
        runs/test_commands: verify_journal_finds_two_entries_exchanged verify_journal_finds_a_tail_cut_off
        runs/test_journal: broken_by_a_change broken_by_a_removal broken_by_an_exchange""",
    ),
    "C-76": Statement(
        "a journal that was cut off or written anew is found by signed checkpoints outside",
        """runs/test_checkpoints: verify_finds_newest_entries_cut_off_with_their_heads_adjusted
        runs/test_checkpoints: verify_finds_all_chains_written_anew
        runs/test_checkpoints: verify_finds_yesterdays_database_also_when_it_has_grown_again""",
    ),
    "C-79": Statement(
        "the admin only looks, also for superusers, behind a second factor",
        """runs/test_admin: nothing_is_added_changed_or_deleted_also_by_superusers
        runs/test_admin: second_factor_is_asked_for_where_it_is_not_local
        approvals/test_admin: history_is_never_changed_also_by_superusers""",
    ),
    "C-80": Statement(
        "errors never fail open",
        """approvals/test_authority: policy_that_cannot_be_asked_holds database_that_goes_away_is_no_policy
        approvals/test_looks: look_that_cannot_read_blocks_and_voids_nothing
        approvals/test_looks: unreadable_right_before_the_call_waits_for_its_source
        approvals/test_notifications: mail_server_away_leaves_the_request_as_it_is
        approvals/test_receivers: request_that_cannot_be_made_undoes_its_hold
        races/test_decisions: approve_while_the_queue_is_away_is_kept_and_shown""",
    ),
}

# -- Cases that broke others, as far as people and pages go --------------------------------------
CASES = {
    "F14": Statement(
        "reviewer saw X, executor ran Y",
        """approvals/test_authority: arguments_of_the_step_changed_in_the_database_run_nothing
        approvals/test_authority: arguments_and_their_digest_changed_in_the_database_run_nothing
        runs/test_snapshots: arguments_of_a_waiting_call_changed""",
    ),
    "F16": Statement(
        "an edit used to slip past the policy",
        """approvals/test_editing: edit_that_does_not_fit_the_schema_is_refused edit_to_what_policy_denies_is_refused
        approvals/test_editing: edit_to_what_others_decide_is_proposed_to_them edit_to_a_higher_tier_needs_somebody_else
        security/test_policy_and_edits: edit_upwards_meets_the_policy_in_force_at_the_call""",
    ),
    "F17": Statement(
        "an edit recorded in one place only",
        """approvals/test_editing: edit_runs_the_edited_call_and_agent_record_and_journal_know
        approvals/test_editing: same_proposal_after_an_edit_is_a_new_request
        journeys/test_decisions: edited_the_outside_the_agent_and_the_record_know""",
    ),
    "F20": Statement(
        "a missing decision counted as yes",
        f"""{VIEWS}: decide_that_does_not_fit_is_422_and_changes_nothing
        {DECISIONS}: decide_with_another_verb_is_refused
        security/test_edge: field_sent_twice_decides_nothing""",
    ),
    "F23": Statement(
        "silence recorded as a person's no",
        """approvals/test_requests: expire_names_nobody_and_is_not_a_rejection
        runs/test_holds: expire_tells_no_persons_name
        approvals/test_wording: step_of_an_expired_request_is_called_expired""",
    ),
    "F26": Statement(
        "the edit form changes numbers",
        f"""approvals/test_forms: untouched_form_gives_the_same_arguments number_with_a_comma_says_what_would_be_right
        {VIEWS}: untouched_edit_form_of_odd_values_changes_nothing""",
    ),
    "F36": Statement(
        "decision at the very moment of expiry",
        """races/pairs/test_decisions: approve_before_expire expire_before_approve approve_against_expire
        races/test_decisions: expiry_first_and_approve_is_refused""",
    ),
    "F38": Statement(
        "expiry exists only on the page, or dies with the process",
        f"""{VIEWS}: expired_shows_as_expired_though_no_sweeper_came
        approvals/test_requests: open_at_leaves_out_what_is_over_whatever_the_sweeper_has_got_to
        approvals/test_receivers: sweep_expires_what_nobody_decided
        approvals/test_notifications: send_after_the_end_gives_up_though_the_sweeper_was_not_there""",
    ),
    "F41": Statement(
        "time zones and daylight saving",
        """security/test_time_zones: deadline_is_so_many_hours_later_over_a_change_of_the_clock
        security/test_time_zones: page_mail_and_api_name_the_zone
        security/test_time_zones: expires_at_the_same_instant_in_any_zone
        security/test_time_zones: connection_is_in_utc_whatever_the_server_or_the_role_is_set_to
        approvals/test_templates: time_at_names_its_zone""",
    ),
    "F57": Statement(
        "request of a dead run still answerable",
        f"""{VIEWS}: decide_after_the_run_was_cancelled_is_409
        {DECISIONS}: decide_after_the_run_was_cancelled_says_so
        approvals/test_requests: request_is_not_deleted_with_what_it_hangs_on cancel_of_the_run_closes_what_stands
        races/pairs/test_decisions: cancel_before_approve
        journeys/test_decisions: cancelled_while_the_page_is_open""",
    ),
    "F60": Statement(
        "self-approval through another door",
        f"""security/test_self_approval: own_request_is_refused_at_every_door
        security/test_self_approval: own_decision_is_403_and_in_the_journal
        security/test_self_approval: rule_changed_by_who_started_it_moves_nothing_that_waits
        approvals/test_batches: own_requests_are_not_approved_together
        {VIEWS}: requester_sees_no_control_and_is_403
        approvals/test_desk: delegate_only_to_who_may_decide_and_never_back""",
    ),
    "F63": Statement(
        "rights or policy change while it waits",
        f"""{VIEWS}: role_lost_with_the_page_open_is_the_same_page
        {DECISIONS}: role_lost_after_it_is_in_force_changes_nothing
        approvals/test_editing: edit_of_a_tool_that_is_gone_is_refused
        approvals/test_authority: policy_that_denies_now_ends_the_call policy_that_asks_a_higher_tier_reopens
        browser/test_sessions: role_lost_while_the_page_is_open""",
    ),
    "F66": Statement(
        "account deleted or disabled",
        f"""{DECISIONS}: deleted_reviewer_stays_in_the_history deleted_owner_leaves_the_request_open
        {DECISIONS}: deleted_in_the_window_voids_the_decision
        {VIEWS}: history_keeps_the_name_of_who_was_deleted
        approvals/test_notifications: send_to_who_lost_the_role_was_disabled_or_deleted_gives_up""",
    ),
    "F68": Statement(
        "a mail scanner opens the link",
        f"""browser/test_mail_scanner: scanner_that_runs_scripts_and_presses_every_button
        browser/test_mail_scanner: addresses_fetched_without_a_session pages_fetched_by_who_may_see_them
        {VIEWS}: reading_changes_nothing_and_rings_nobody reading_with_prefetch_headers_changes_nothing""",
    ),
    "F69": Statement(
        "the address in a mail is opaque and no key",
        f"""approvals/test_requests: ref_is_opaque_and_never_the_same
        {VIEWS}: unknown_and_foreign_are_one_page decide_never_trusts_the_query
        approvals/test_notifications: mail_has_one_address_and_it_carries_no_key
        browser/test_mail_scanner: forwarded_link""",
    ),
    "F71": Statement(
        "an agent's text breaks or abuses the mail",
        """approvals/test_notifications: mail_holds_nothing_of_the_agents
        approvals/test_notifications: mail_says_fixed_words_the_reference_and_the_clock
        approvals/test_templates: mail_minimal_has_no_word_from_outside""",
    ),
    "F74": Statement(
        "double click",
        """browser/test_one_decision: double_click two_posts_from_one_page enter_and_click
        browser/test_one_decision: approve_then_reject_at_once buttons_are_free_again_after_the_answer_was_lost
        races/test_decisions: one_form_sent_twice_at_once_is_one_decision""",
    ),
    "F75": Statement(
        "an old form overwrites the newer state",
        f"""browser/test_one_decision: stale_tab_shows_old_and_new_side_by_side decision_without_a_digest_is_refused
        {VIEWS}: decide_with_an_old_digest_is_409_and_shows_then_and_now
        approvals/test_editing: edit_on_what_changed_meanwhile_is_stale""",
    ),
    "F76": Statement(
        "the session runs out in the middle",
        f"""browser/test_sessions: session_ended_before_approving session_ended_with_a_note_typed
        browser/test_sessions: session_ended_while_editing session_ended_before_a_poll
        {VIEWS}: fragment_without_a_session_is_401_and_no_form
        api/test_keys: without_a_key""",
    ),
    "F78": Statement(
        "back button and restored history",
        """browser/test_sessions: back_and_forward_after_deciding fragment_opened_as_a_page_is_a_whole_page
        browser/test_sessions: restored_history_is_a_whole_page back_after_signing_out_shows_nothing""",
    ),
    "F79": Statement(
        "polling eats what the reviewer typed",
        """browser/test_polling: typing_goes_on_while_things_change one_loop_however_often_the_page_is_swapped
        browser/test_polling: an_answer_that_waits_keeps_others_from_starting no_polls_from_a_hidden_tab""",
    ),
    "F80": Statement(
        "script in an agent's text",
        f"""{VIEWS}: hostile_text_is_text_on_every_page
        runs/test_admin: hostile_text_stays_text
        approvals/test_templates: page_hostile_text_stays_text
        security/test_hostile_names: names_are_words_and_what_is_hidden_in_them_is_shown
        api/test_description: page_has_nothing_inline_and_only_our_own_files""",
    ),
    "F81": Statement(
        "the page does not show what will run",
        f"""{VIEWS}: long_and_padded_arguments_are_whole_on_the_page hidden_characters_are_marks_on_every_page
        approvals/test_templates: value_tree_long_text_is_whole_and_measured
        security/test_long_texts: tree_holds_all_of_a_value_too_long_for_it""",
    ),
}

STATEMENTS = {**DECIDING, **WHO, **SIGNING_IN, **SHOWN, **HOSTILE, **BROWSER, **NOTICES, **JOURNAL, **CASES}
