"""The steps from documents to the training data of a retriever."""
