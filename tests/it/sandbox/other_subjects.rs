//! Tests of other subjects once more, in a sandbox, with srt and with bubblewrap.

use crate::approval::shell_commands;
use crate::cells::{branches, execution, exits, kernel_deaths, undo};
use crate::output::{displays, images, long_output, notebook, plots, tracebacks};
use crate::protocol::{requests, resources as served};
use crate::support::{Setting, with_kernels};
use crate::tools::{calls, content, inference, registration, resources, search};
use crate::views::without_browser as views;

/// Makes a test of each test of another suite, which starts its sessions in a sandbox of this backend then.
macro_rules! once_more_in_a_sandbox {
    ($module:ident, $backend:literal: $($suite:ident::$name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { super::with_kernels(super::Setting::Sandbox($backend), super::$suite::$name) })*
        }
    };
}

once_more_in_a_sandbox! { bwrap, "bwrap":
    branches::a_copy_begins_with_the_variables_and_is_apart_from_then_on
    branches::a_copy_is_interrupted_dies_and_starts_anew_like_any_kernel
    branches::both_call_tools_after_a_copy_with_tokens_of_their_own
    undo::an_undone_cell_has_changed_nothing_in_the_kernel
    undo::a_kernel_that_died_is_brought_back
    undo::a_running_cell_is_stopped_and_undone
    undo::calls_go_on_after_an_undo_and_are_named
    exits::what_python_does_at_its_exit_is_done_at_a_reset
    exits::what_python_does_at_its_exit_is_done_when_the_client_goes
    exits::a_cell_that_runs_at_the_exit_is_interrupted_and_cleans_up
    execution::the_kernel_is_like_ipython_on_a_plain_terminal
    calls::tools_are_called_from_every_kind_of_code
    content::binary_content_arrives_as_objects
    kernel_deaths::output_before_a_sudden_death_is_shown
    kernel_deaths::code_that_never_lets_go_of_the_interpreter_is_ended_with_what_it_printed
    inference::results_get_a_type_that_outlasts_the_kernel_and_the_registration
    resources::resources_are_listed_and_read
    long_output::output_holds_what_was_printed_however_slowly_it_is_read
    displays::progress_bars_collapse_to_their_final_state
    plots::plots_are_pages_for_clients_without_views
    served::a_file_that_a_cell_shows_is_a_resource
    served::what_cannot_be_shown_is_an_error_with_the_reason
    notebook::cells_are_written_as_jupyter_writes_them
    notebook::ipybox_chooses_a_private_place
    search::tools_are_found_and_called_as_the_answer_says
    search::a_new_registration_is_found_at_once
    shell_commands::commands_run_as_ever_where_everything_is_allowed
    tracebacks::a_failed_call_shows_its_message_and_the_lines_of_the_users_code
    tracebacks::wrong_names_are_answered_with_the_right_ones
    views::plots_have_views_wherever_they_are_made
    views::tables_of_all_kinds_have_views_and_short_texts
}

// What runs inside is the same, gateway and kernel: here is what depends on who makes the network, mounts and processes.
once_more_in_a_sandbox! { srt, "srt":
    branches::a_copy_begins_with_the_variables_and_is_apart_from_then_on
    branches::a_copy_is_interrupted_dies_and_starts_anew_like_any_kernel
    branches::both_call_tools_after_a_copy_with_tokens_of_their_own
    undo::an_undone_cell_has_changed_nothing_in_the_kernel
    undo::a_kernel_that_died_is_brought_back
    undo::a_running_cell_is_stopped_and_undone
    undo::calls_go_on_after_an_undo_and_are_named
    execution::output_is_what_ipython_shows
    execution::a_reset_clears_variables_and_stops_what_runs
    exits::what_python_does_at_its_exit_is_done_at_a_reset
    exits::what_python_does_at_its_exit_is_done_when_the_client_goes
    exits::a_cell_that_runs_at_the_exit_is_interrupted_and_cleans_up
    calls::tools_are_called_from_every_kind_of_code
    calls::large_arguments_and_results_pass
    kernel_deaths::output_before_a_sudden_death_is_shown
    images::a_plot_is_shown_as_it_was_saved
    requests::a_cancelled_cell_is_interrupted_and_the_next_one_runs
    registration::code_that_runs_already_sees_a_new_registration
    search::tools_are_found_and_called_as_the_answer_says
    search::a_new_registration_is_found_at_once
    shell_commands::commands_run_as_ever_where_everything_is_allowed
}
