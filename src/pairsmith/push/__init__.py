"""Dataset and model folders sent to the Hugging Face Hub."""
