//! Tests of other subjects once more, with kernels on Jupyter's real servers.

use crate::approval::shell_commands;
use crate::cells::{execution, exits, magics};
use crate::output::{displays, long_output, notebook, plots, tracebacks};
use crate::protocol::{requests, resources as served};
use crate::support::jupyter::Server;
use crate::support::{Setting, with_kernels};
use crate::tools::{calls, content, inference, registration, resources, search};
use crate::views::without_browser as views;

/// Makes a test of each test of another suite, whose kernels run in this setting then.
macro_rules! once_more {
    ($module:ident, $setting:ident: $($suite:ident::$name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { super::with_kernels(super::$setting, super::$suite::$name) })*
        }
    };
}

/// The same by ipykernel 7 and by ipykernel 6, each on a server that is not the other's.
macro_rules! once_more_by_both_kernels {
    ($($suite:ident::$name:ident)*) => {
        once_more! { jupyter_server, JUPYTER_SERVER: $($suite::$name)* }
        once_more! { enterprise_gateway, ENTERPRISE_GATEWAY: $($suite::$name)* }
    };
}

const JUPYTER_SERVER: Setting = Setting::Remote(Server::JupyterServer, "python3");
const KERNEL_GATEWAY: Setting = Setting::Remote(Server::KernelGateway, "python3");
const ENTERPRISE_GATEWAY: Setting = Setting::Remote(Server::EnterpriseGateway, "ipykernel6");
const DISTANT: Setting = Setting::Distant(Server::JupyterServer);

once_more_by_both_kernels! {
    execution::plots_are_saved_and_linked
    execution::code_that_takes_too_long_is_interrupted_and_variables_survive
    exits::what_python_does_at_its_exit_is_done_at_a_reset
    exits::what_python_does_at_its_exit_is_done_when_the_client_goes
    execution::what_programs_print_belongs_to_the_cell_that_ran_them
    calls::asynchronous_calls_do_not_block_the_loop
    content::links_are_read_from_their_server
    content::pictures_of_tools_are_shown
    content::results_are_of_the_promised_type
    inference::results_get_a_type_that_outlasts_the_kernel_and_the_registration
    resources::prompts_are_functions_with_typed_arguments
    resources::resources_are_listed_and_read
    long_output::output_holds_what_was_printed_however_slowly_it_is_read
    displays::progress_bars_collapse_to_their_final_state
    plots::plots_are_pages_for_clients_without_views
    served::a_file_that_a_cell_shows_is_a_resource
    notebook::cells_are_written_as_jupyter_writes_them
    search::tools_are_found_and_called_as_the_answer_says
    search::a_new_registration_is_found_at_once
    shell_commands::commands_run_as_ever_where_everything_is_allowed
    tracebacks::a_failed_call_shows_its_message_and_the_lines_of_the_users_code
    tracebacks::wrong_names_are_answered_with_the_right_ones
    tracebacks::a_package_that_changes_is_imported_anew
    views::plots_have_views_wherever_they_are_made
}

// Whose kernels have the libraries.
once_more! { with_libraries, JUPYTER_SERVER:
    displays::a_figure_is_shown_once
    magics::a_program_that_ends_well_is_no_error
    views::tables_of_all_kinds_have_views_and_short_texts
}

// The kernel is the Jupyter Server's; the server is another: how it starts, interrupts, restarts and passes messages on.
once_more! { kernel_gateway, KERNEL_GATEWAY:
    execution::output_is_what_ipython_shows
    execution::long_output_is_cut_with_a_notice
    execution::code_that_takes_too_long_is_interrupted_and_variables_survive
    execution::a_reset_clears_variables_and_stops_what_runs
    calls::interrupting_a_cell_ends_its_call_and_not_the_connection
    calls::large_arguments_and_results_pass
}

// Server and kernel are as above; what takes time is on its way: calls, interrupts, output that is reported at once.
once_more! { distant, DISTANT:
    execution::a_reset_clears_variables_and_stops_what_runs
    execution::code_that_takes_too_long_is_interrupted_and_variables_survive
    calls::interrupting_a_cell_ends_its_call_and_not_the_connection
    calls::large_arguments_and_results_pass
    calls::asynchronous_calls_do_not_block_the_loop
    requests::output_is_reported_as_progress_while_it_is_produced
    requests::a_cancelled_cell_is_interrupted_and_the_next_one_runs
    registration::code_that_runs_already_sees_a_new_registration
}
