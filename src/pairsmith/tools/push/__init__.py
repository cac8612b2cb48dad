"""Upload dataset and model folders to the Hugging Face Hub."""
