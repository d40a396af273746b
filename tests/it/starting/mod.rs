//! What happens before the first cell: flags, the workspace, the Python environment, `ipybox doctor`.

mod command_line;
mod doctor;
mod dotenv;
mod python_environment;
mod workspace;
