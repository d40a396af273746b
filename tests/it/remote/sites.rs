//! The same tests of sessions wherever their kernels run. On this machine they are the tests themselves.

use crate::cells::execution;
use crate::output::{images, streams};
use crate::protocol::{requests, resources as served};
use crate::support::jupyter::Server;
use crate::support::{Setting, with_kernels};
use crate::tools::{calls, registration};

const JUPYTER_SERVER: Setting = Setting::Remote(Server::JupyterServer, "python3");
const ENTERPRISE_GATEWAY: Setting = Setting::Remote(Server::EnterpriseGateway, "ipykernel6");

/// Makes a test of each test of another suite for each site.
macro_rules! at_each_site {
    ($($suite:ident::$name:ident)*) => {
        #[cfg(target_os = "linux")]
        mod sandboxed {
            $(#[test] fn $name() { super::with_kernels(super::Setting::Sandbox("bwrap"), super::$suite::$name) })*
        }
        mod jupyter_server {
            $(#[test] fn $name() { super::with_kernels(super::JUPYTER_SERVER, super::$suite::$name) })*
        }
        mod enterprise_gateway {
            $(#[test] fn $name() { super::with_kernels(super::ENTERPRISE_GATEWAY, super::$suite::$name) })*
        }
        #[cfg(target_os = "linux")]
        mod jupyter_hub {
            $(#[test] fn $name() { super::with_kernels(super::Setting::Hub, super::$suite::$name) })*
        }
        #[cfg(target_os = "linux")]
        mod pod {
            $(#[test] fn $name() { super::with_kernels(super::Setting::Pod, super::$suite::$name) })*
        }
    };
}

at_each_site! {
    execution::output_is_what_ipython_shows
    execution::an_exception_is_an_error_with_what_was_printed_before
    execution::long_output_is_cut_with_a_notice
    execution::a_reset_clears_variables_and_stops_what_runs
    calls::errors_of_tools_become_python_exceptions
    calls::interrupting_a_cell_ends_its_call_and_not_the_connection
    calls::large_arguments_and_results_pass
    images::a_plot_is_shown_as_it_was_saved
    streams::late_output_of_threads_and_tasks_is_marked
    served::files_that_a_client_passes_are_there_for_the_cell
    requests::output_is_reported_as_progress_while_it_is_produced
    requests::a_cancelled_cell_is_interrupted_and_the_next_one_runs
    registration::code_that_runs_already_sees_a_new_registration
}
